// How much memory this host has for us, and how much of it is free: the least of MemAvailable, of
// the free memory of the NUMA nodes that we are bound to, and of what every ancestor of our cgroup
// (v1 or v2) still allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

struct HostMemory {
  int64_t total_bytes = 0;      // the least of MemTotal, our NUMA nodes' and our cgroups' limits
  int64_t available_bytes = 0;  // at most total_bytes
};

// One thing that limits the memory of this process, and of others with it.
struct HostLimit {
  std::string id;    // equal for two processes exactly when it limits both together; no spaces
  std::string name;  // "host a", "the cgroup /sys/fs/cgroup/x"; one line
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // at most total_bytes
  int64_t cache_bytes = 0;      // of a cgroup: page cache in use, which goes before a process does
  bool cgroup = false;

  // One line of text, for the exchange between ranks.
  std::string Serialize() const;
  static absl::StatusOr<HostLimit> Parse(absl::string_view text);
};

// The host itself first, then its NUMA nodes where we may use some of them only, then the cgroups
// that have a limit, innermost first. `root` is put before /proc and /sys (a made-up tree in tests;
// empty otherwise). A cgroup's page cache that can be dropped (inactive_file) counts as available,
// and so do file pages of a NUMA node. NOT_FOUND without a readable /proc/meminfo.
absl::StatusOr<std::vector<HostLimit>> ProbeHostLimits(const std::string& root = "");

// The tightest of them.
absl::StatusOr<HostMemory> ProbeHostMemory(const std::string& root = "");

// The cgroup that has the least left; none where none limits us.
std::optional<HostLimit> TightestCgroup(const std::string& root = "");

// The same for two processes exactly when one kernel runs both.
std::string BootId(const std::string& root = "");

// What of this process is in memory now; 0 where /proc does not say.
int64_t ResidentBytes();
// The part of it that is no file's and no other process's: heap, stacks, arenas.
int64_t ResidentAnonymousBytes();

}  // namespace bulkhead
