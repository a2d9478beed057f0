// NUMA: which nodes the ranks of a host take, and memory on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace bulkhead {

inline constexpr int kMaxNumaNodes = 1024;  // the kernel's own limit

// The value of --numa.
struct NumaOption {
  bool off = false;        // nothing is placed
  std::vector<int> nodes;  // the nodes of the host's ranks, in this order; empty: all

  bool operator==(const NumaOption&) const = default;
};

struct NumaNode {
  int id = 0;
  std::vector<int> cores;  // ascending; empty for memory without cores
};

// A rank's nodes: it runs on their cores and uses their memory.
struct NumaPlacement {
  std::vector<int> nodes;  // several: pages are interleaved; empty: nothing is placed
  std::vector<int> cores;  // the rank's cores, ascending
};

struct NumaPlan {
  std::vector<NumaPlacement> ranks;
  std::string warning;  // why ranks do not have nodes of their own; "" if they do
};

// The nodes whose memory this process may use (Mems_allowed_list), ascending; empty if the kernel
// does not say. `root`: a prefix of /proc and /sys.
std::vector<int> AllowedNumaNodes(const std::string& root = "");
// The allowed nodes that have memory, with their cores.
std::vector<NumaNode> ProbeNumaNodes(const std::string& root = "");

// Where the ranks of one host go. `cores_of_ranks`: the cores that each may use, by local rank.
// Ranks with equal cores take whole nodes: the same number of nodes each, or the same number of
// ranks per node. Where that does not divide, or nodes have unequal numbers of cores, every rank
// spreads over all of them. Ranks that a launcher bound to different cores keep these and take the
// memory of their nodes. Without --numa LIST nothing is placed if the host's cores are on one node
// only, or if cores have no memory of their own. INVALID_ARGUMENT for a listed node that does not
// exist or that no rank can use, and for a rank that can use none.
absl::StatusOr<NumaPlan> PlaceRanks(absl::Span<const NumaNode> host,
                                    absl::Span<const std::vector<int>> cores_of_ranks,
                                    const NumaOption& option);

// Whether this thread inherited a memory policy (numactl).
bool HasMemoryPolicy();
// The nodes that this thread's memory comes from: the allowed ones, less those excluded by an
// MPOL_BIND policy (numactl --membind, srun --mem-bind). With one the kernel kills the process when
// these nodes are full, even if others have memory.
std::vector<int> MemoryNodes(const std::string& root = "");
// Memory that this thread, and threads it creates later, touch first comes from these nodes, or
// from others where they are full: an exhausted node does not end the process. FAILED_PRECONDITION
// if the kernel refuses, as in containers without CAP_SYS_NICE.
absl::Status UseMemoryOf(const std::vector<int>& nodes);

// This process's private memory, by location.
struct NumaBytes {
  int64_t on_nodes = 0;
  int64_t elsewhere = 0;
};
// From the text of /proc/self/numa_maps.
NumaBytes CountNumaBytes(const std::string& numa_maps, const std::vector<int>& nodes);
// Zeros if the kernel does not say.
NumaBytes MeasureNumaBytes(const std::vector<int>& nodes);

}  // namespace bulkhead
