// Which process a report of `serve` speaks of, and whether it still serves.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "memory/oom_kills.h"
#include "nlohmann/json_fwd.hpp"

namespace bulkhead {

// Rank 0, as it was when the group was READY.
struct ServedProcess {
  std::string host;           // as messages call it
  std::string pid_namespace;  // where `pid` means something: "BOOT_ID pid:[4026531836]"
  int64_t pid = 0;
  uint64_t start_ticks =
      0;               // since the machine's boot: tells a pid from a later one of that number
  OomKills oom_kills;  // of its cgroup
};

ServedProcess ThisProcess(const std::string& host);

enum class Sighting { kRuns, kGone, kOutOfSight };  // the last one: another machine or container
Sighting LookFor(const ServedProcess& process);

// The report's "process".
nlohmann::ordered_json ProcessJson(const ServedProcess& process);

// Writes "state": "lost" and the cause into the report at `path` if it still says that process
// `pid` serves. Ok where there is nothing to write; INVALID_ARGUMENT (exit code 2) when it cannot
// be written.
absl::Status MarkReportLost(const std::string& path, int64_t pid, const std::string& cause);

}  // namespace bulkhead
