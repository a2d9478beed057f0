#include "comm/topology.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/host_cores.h"

namespace bulkhead {
namespace {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  const char* const given = std::getenv("BULKHEAD_NODE_NAME");
  std::string text = given != nullptr && given[0] != '\0' ? given : name;
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "unknown" : id;
}

// One character per core, '1' if allowed.
std::string AffinityMask() {
  const std::vector<int> cores = AllowedCores();
  std::string text(cores.back() + 1, '0');
  for (const int core : cores) text[core] = '1';
  return text;
}

}  // namespace

int RankTopology::num_nodes() const {
  return nodes.empty() ? 1 : 1 + *std::max_element(nodes.begin(), nodes.end());
}

std::vector<int> RankTopology::RanksOf(int node) const {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) {
    if (nodes.empty() || nodes[r] == node) ranks.push_back(r);
  }
  return ranks;
}

std::string RankTopology::NameOf(int r, int64_t pid) const {
  const std::string process = pid == 0 ? "" : absl::StrCat(", pid ", pid);
  return absl::StrCat("rank ", world_ranks.empty() ? r : world_ranks[r], " (host ", hosts[r],
                      process, ")");
}

LostRank RankTopology::LostRankAt(int r) const {
  return {world_ranks.empty() ? r : world_ranks[r], hosts[r]};
}

RankTopology NodeTopology(const RankTopology& world) {
  RankTopology node;
  node.rank = node.local_rank = world.local_rank;
  node.size = node.local_size = world.local_size;
  node.local_cores = world.local_cores;
  node.world_ranks = world.RanksOf(world.node());
  for (const int rank : node.world_ranks) node.hosts.push_back(world.hosts[rank]);
  return node;
}

std::string HostIdentity() { return absl::StrCat(HostName(), " ", BootId(), " ", AffinityMask()); }

absl::StatusOr<RankTopology> TopologyFrom(int rank, absl::Span<const std::string> identities) {
  RankTopology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(identities.size());
  topology.local_size = 0;
  std::vector<std::vector<std::string>> fields;
  for (const std::string& identity : identities) {
    fields.push_back(absl::StrSplit(identity, ' '));
    if (fields.back().size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", fields.size() - 1, " sent a malformed identity: '", identity, "'"));
    }
    topology.hosts.push_back(fields.back()[0]);
  }
  std::map<std::pair<std::string, std::string>, int> known;
  for (const std::vector<std::string>& field : fields) {
    const auto next = static_cast<int>(known.size());
    topology.nodes.push_back(known.try_emplace({field[0], field[1]}, next).first->second);
  }
  std::string cores;
  for (int other = 0; other < topology.size; ++other) {
    if (topology.nodes[other] != topology.nodes[rank]) continue;
    if (other < rank) ++topology.local_rank;
    ++topology.local_size;
    const std::string& mask = fields[other][2];
    cores.resize(std::max(cores.size(), mask.size()), '0');
    for (size_t i = 0; i < mask.size(); ++i) cores[i] = std::max(cores[i], mask[i]);
  }
  topology.local_cores = std::max(1, static_cast<int>(std::count(cores.begin(), cores.end(), '1')));
  return topology;
}

}  // namespace bulkhead
