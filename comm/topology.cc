#include "comm/topology.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "memory/host_cores.h"

namespace bulkhead {
namespace {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text = name;
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "unknown" : id;
}

// One letter per core, '1' where this process may run.
std::string AffinityMask() {
  const std::vector<int> cores = AllowedCores();
  std::string text(cores.back() + 1, '0');
  for (const int core : cores) text[core] = '1';
  return text;
}

}  // namespace

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
  std::string cores;
  for (int other = 0; other < topology.size; ++other) {
    if (fields[other][0] != fields[rank][0] || fields[other][1] != fields[rank][1]) continue;
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
