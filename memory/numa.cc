#include "memory/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/host_cores.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;
// Nodes are divided among ranks if the fewest cores of a node are within an eighth of the most.
constexpr int kUnevenDivisor = 8;

using Cores = std::vector<int>;

Cores Common(const Cores& a, const Cores& b) {
  Cores both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

Cores CoresOf(absl::Span<const NumaNode> nodes) {
  Cores all;
  for (const NumaNode& node : nodes) all.insert(all.end(), node.cores.begin(), node.cores.end());
  std::sort(all.begin(), all.end());
  return all;
}

Cores IdsOf(absl::Span<const NumaNode> nodes) {
  Cores ids;
  for (const NumaNode& node : nodes) ids.push_back(node.id);
  return ids;
}

// The nodes that have some of `cores`, with only these cores.
std::vector<NumaNode> NodesWith(absl::Span<const NumaNode> nodes, const Cores& cores) {
  std::vector<NumaNode> some;
  for (const NumaNode& node : nodes) {
    NumaNode part{node.id, Common(node.cores, cores)};
    if (!part.cores.empty()) some.push_back(std::move(part));
  }
  return some;
}

absl::StatusOr<std::vector<NumaNode>> ListedNodes(absl::Span<const NumaNode> host,
                                                  const std::vector<int>& ids) {
  std::vector<NumaNode> listed;
  for (const int id : ids) {
    const auto* const node = std::find_if(host.begin(), host.end(),
                                          [id](const NumaNode& other) { return other.id == id; });
    if (node == host.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--numa: ", id, " is not a NUMA node with memory for this process; ",
          host.empty() ? "the kernel reports none" : "it has nodes " + CoreListText(IdsOf(host)),
          "; leave it out for all"));
    }
    listed.push_back(*node);
  }
  return listed;
}

// Why `size` ranks cannot have nodes of their own; "" if they can.
std::string WhyNotDivided(absl::Span<const NumaNode> nodes, int size) {
  const auto count = static_cast<int>(nodes.size());
  if (size % count != 0 && count % size != 0) {
    return absl::StrCat(size, " ranks do not divide ", count, " NUMA nodes: start ", count, ", ",
                        "or a multiple or a divisor of that");
  }
  const auto fewer = [](const NumaNode& a, const NumaNode& b) {
    return a.cores.size() < b.cores.size();
  };
  const auto [least, most] = std::minmax_element(nodes.begin(), nodes.end(), fewer);
  if ((most->cores.size() - least->cores.size()) * kUnevenDivisor > most->cores.size()) {
    return absl::StrCat("NUMA node ", least->id, " has ", least->cores.size(), " cores and node ",
                        most->id, " has ", most->cores.size(),
                        ": give each rank cores of one node (mpirun --map-by, srun --cpu-bind)");
  }
  return "";
}

// Places ranks with equal cores on `nodes`.
NumaPlan Divide(absl::Span<const NumaNode> nodes, int size) {
  NumaPlan plan;
  const auto count = static_cast<int>(nodes.size());
  if (size > 1) plan.warning = WhyNotDivided(nodes, size);
  for (int rank = 0; rank < size; ++rank) {
    absl::Span<const NumaNode> mine = nodes;
    if (size > 1 && plan.warning.empty()) {
      mine = nodes.subspan(rank * count / size, std::max(1, count / size));
    }
    plan.ranks.push_back({IdsOf(mine), CoresOf(mine)});
  }
  if (!plan.warning.empty()) plan.warning += "; every rank's memory is spread over all nodes";
  return plan;
}

using NodeMask = std::array<unsigned long, kMaxNumaNodes / kWordBits>;
constexpr int kMaskBits = kMaxNumaNodes + 1;  // the kernel takes one bit less than it is told

}  // namespace

std::vector<int> AllowedNumaNodes(const std::string& root) {
  std::ifstream status(root + "/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view list = line;
    if (absl::ConsumePrefix(&list, "Mems_allowed_list:")) return ParseKernelList(std::string(list));
  }
  return {};
}

std::vector<NumaNode> ProbeNumaNodes(const std::string& root) {
  const std::string sys = root + "/sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const int id : Common(AllowedNumaNodes(root), ReadKernelList(sys + "/has_memory"))) {
    nodes.push_back({id, ReadKernelList(absl::StrCat(sys, "/node", id, "/cpulist"))});
  }
  return nodes;
}

absl::StatusOr<NumaPlan> PlaceRanks(absl::Span<const NumaNode> host,
                                    absl::Span<const std::vector<int>> cores_of_ranks,
                                    const NumaOption& option) {
  NumaPlan plan;
  for (const Cores& cores : cores_of_ranks) plan.ranks.push_back({{}, cores});
  if (option.off) return plan;
  const NumaPlan nothing = plan;
  const bool listed = !option.nodes.empty();
  std::vector<NumaNode> chosen(host.begin(), host.end());
  if (listed) {
    BH_ASSIGN_OR_RETURN(chosen, ListedNodes(host, option.nodes));
  }
  const Cores cores_of_nodes = CoresOf(chosen);
  const auto has_cores = [](const NumaNode& node) { return !node.cores.empty(); };
  if (!listed && std::count_if(chosen.begin(), chosen.end(), has_cores) < 2) return nothing;
  bool equal = true;
  for (NumaPlacement& rank : plan.ranks) {
    const Cores mine = Common(rank.cores, cores_of_nodes);
    if (mine.empty() && listed) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--numa: a rank may use the cores ", CoreListText(rank.cores),
          " and none of the listed nodes' ", CoreListText(cores_of_nodes), "; list others"));
    }
    if (mine.size() < rank.cores.size() && !listed) return nothing;
    rank = {IdsOf(NodesWith(chosen, mine)), mine};
    equal = equal && mine == plan.ranks[0].cores;
  }
  for (const int id : option.nodes) {
    const auto takes = [id](const NumaPlacement& rank) {
      return std::find(rank.nodes.begin(), rank.nodes.end(), id) != rank.nodes.end();
    };
    if (std::none_of(plan.ranks.begin(), plan.ranks.end(), takes)) {
      return absl::InvalidArgumentError(absl::StrCat("--numa: no rank may use a core of NUMA node ",
                                                     id, "; leave that node out"));
    }
  }
  if (!equal) return plan;
  return Divide(NodesWith(chosen, plan.ranks[0].cores), static_cast<int>(plan.ranks.size()));
}

bool HasMemoryPolicy() {
  int mode = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != MPOL_DEFAULT;
}

std::vector<int> MemoryNodes(const std::string& root) {
  const std::vector<int> allowed = AllowedNumaNodes(root);
  int mode = MPOL_DEFAULT;
  NodeMask mask = {};
  // Relative nodes, which neither numactl nor Slurm sets, are not nodes of the host.
  constexpr int kFlags = MPOL_MODE_FLAGS & ~MPOL_F_RELATIVE_NODES;
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kMaskBits, nullptr, 0) != 0 ||
      (mode & ~kFlags) != MPOL_BIND) {
    return allowed;
  }
  std::vector<int> bound;
  for (const int node : allowed) {
    if (node < kMaxNumaNodes && (mask[node / kWordBits] >> (node % kWordBits) & 1) != 0) {
      bound.push_back(node);
    }
  }
  return bound.empty() ? allowed : bound;  // as the kernel does
}

absl::Status UseMemoryOf(const std::vector<int>& nodes) {
  NodeMask mask = {};
  for (const int node : nodes) {
    BH_CHECK(node >= 0 && node < kMaxNumaNodes);
    mask[node / kWordBits] |= 1UL << (node % kWordBits);
  }
  const int mode = nodes.size() > 1 ? MPOL_INTERLEAVE : MPOL_PREFERRED;
  if (syscall(SYS_set_mempolicy, mode, mask.data(), kMaskBits) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the kernel does not let this process place memory on NUMA nodes ",
                   CoreListText(nodes), ": ", std::strerror(errno)));
}

NumaBytes CountNumaBytes(const std::string& numa_maps, const std::vector<int>& nodes) {
  NumaBytes bytes;
  // "7f8a00000000 prefer:1 anon=512 dirty=512 N0=12 N1=500 kernelpagesize_kB=4"
  for (const absl::string_view line : absl::StrSplit(numa_maps, '\n')) {
    int64_t page_kib = 0;
    bool private_memory = false;
    int64_t here = 0;
    int64_t away = 0;
    for (absl::string_view word : absl::StrSplit(line, ' ')) {
      const std::vector<absl::string_view> field = absl::StrSplit(word, '=');
      int64_t value = 0;
      if (field.size() != 2 || !absl::SimpleAtoi(field[1], &value)) continue;
      int node = 0;
      if (field[0] == "anon") private_memory = true;
      if (field[0] == "kernelpagesize_kB") page_kib = value;
      if (absl::ConsumePrefix(&word, "N") &&
          absl::SimpleAtoi(word.substr(0, word.find('=')), &node)) {
        const bool mine = std::find(nodes.begin(), nodes.end(), node) != nodes.end();
        (mine ? here : away) += value;
      }
    }
    if (!private_memory) continue;
    bytes.on_nodes += here * page_kib * 1024;
    bytes.elsewhere += away * page_kib * 1024;
  }
  return bytes;
}

NumaBytes MeasureNumaBytes(const std::vector<int>& nodes) {
  std::ifstream file("/proc/self/numa_maps");
  std::ostringstream text;
  text << file.rdbuf();
  return CountNumaBytes(text.str(), nodes);
}

}  // namespace bulkhead
