// The host memory available to this process: the minimum of MemAvailable, of the free memory of the
// NUMA nodes it is bound to, and of what every ancestor of its cgroup (v1 or v2; memory.high as
// memory.max) still allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace bulkhead {

struct HostMemory {
  int64_t total_bytes = 0;      // minimum of MemTotal and the limits of our NUMA nodes and cgroups
  int64_t available_bytes = 0;  // at most total_bytes
};

// One limit on the memory of this process and others that share it.
struct HostLimit {
  std::string id;    // equal for two processes exactly if they share this limit; no spaces
  std::string name;  // "host a", "the cgroup /sys/fs/cgroup/x (memory.max)"; one line
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // at most total_bytes
  bool cgroup = false;
};

// The host first, then its NUMA nodes if bound to a subset, then the cgroups with a limit,
// innermost first. `numa_nodes`: the nodes that the process places its memory on; empty: the nodes
// of its cpuset and memory policy (MemoryNodes). `root` is a prefix of /proc and /sys (for tests;
// empty otherwise). All page cache counts as available, active or not, dirty or not: files that
// were read before do not change what a start may take. NOT_FOUND without a readable /proc/meminfo.
absl::StatusOr<std::vector<HostLimit>> ProbeHostLimits(const std::string& root = "",
                                                       const std::vector<int>& numa_nodes = {});

// The tightest limit.
absl::StatusOr<HostMemory> ProbeHostMemory(const std::string& root = "");

// The cgroup with the least available memory; none without a cgroup limit.
std::optional<HostLimit> TightestCgroup(const std::string& root = "");

// Equal for two processes exactly if they run on one kernel.
std::string BootId(const std::string& root = "");

// Resident memory of this process; 0 if /proc does not report it.
int64_t ResidentBytes();
// Its private anonymous part: heap, stacks, arenas.
int64_t ResidentAnonymousBytes();

}  // namespace bulkhead
