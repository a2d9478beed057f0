// How much memory this host has left for us: the least of MemAvailable and what every ancestor of
// our cgroup (v1 or v2) still allows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace bulkhead {

// `root` is put before /proc and /sys (a made-up tree in tests; empty otherwise). A cgroup's page
// cache that can be dropped (inactive_file) counts as available. NOT_FOUND without a readable
// /proc/meminfo.
absl::StatusOr<int64_t> AvailableHostBytes(const std::string& root = "");

}  // namespace bulkhead
