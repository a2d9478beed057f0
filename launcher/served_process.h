// Identifies the process of a `serve` report, and checks whether it still runs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "memory/oom_kills.h"
#include "nlohmann/json_fwd.hpp"

namespace bulkhead {

// Rank 0, as of READY.
struct ServedProcess {
  std::string host;           // name in messages
  std::string pid_namespace;  // scope of `pid`: "BOOT_ID pid:[4026531836]"
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // since boot: distinguishes a reused pid
  OomKills oom_kills;        // of its cgroup
};

ServedProcess ThisProcess(const std::string& host);

enum class ProcessState { kRuns, kGone, kNotVisible };  // kNotVisible: another machine or container
ProcessState FindProcess(const ServedProcess& process);

// The report's "process".
nlohmann::ordered_json ProcessJson(const ServedProcess& process);

// Writes "state": "lost" and the cause into the report at `path` if it still has process `pid` as
// serving. Ok if there is nothing to write; INVALID_ARGUMENT (exit code 2) if it cannot be written.
absl::Status MarkReportLost(const std::string& path, int64_t pid, const std::string& cause);

}  // namespace bulkhead
