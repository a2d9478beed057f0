// How much memory this host has for us, and how much of it is free: the least of MemAvailable, of
// the free memory of the NUMA nodes that we are bound to, and of what every ancestor of our cgroup
// (v1 or v2) still allows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace bulkhead {

struct HostMemory {
  int64_t total_bytes = 0;      // the least of MemTotal, our NUMA nodes' and our cgroups' limits
  int64_t available_bytes = 0;  // at most total_bytes
};

// `root` is put before /proc and /sys (a made-up tree in tests; empty otherwise). A cgroup's page
// cache that can be dropped (inactive_file) counts as available, and so do file pages of a NUMA
// node. NOT_FOUND without a readable /proc/meminfo.
absl::StatusOr<HostMemory> ProbeHostMemory(const std::string& root = "");

// What of this process is in memory now; 0 where /proc does not say.
int64_t ResidentBytes();

}  // namespace bulkhead
