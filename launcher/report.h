// The capacity report as a file (bulkhead/v1/report.proto): read back, its table of ranks, and the
// process that wrote it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bulkhead/v1/report.pb.h"

namespace bulkhead {

// A report that `serve --report` or `plan --json` wrote. INVALID_ARGUMENT naming `path` and, if
// possible, the field, with exit code 2.
absl::StatusOr<v1::Report> ReadReportFile(const std::string& path);

// INVALID_ARGUMENT (exit code 2) when it cannot be written.
absl::Status WriteReport(const std::string& path, const v1::Report& report);

// The answer of Control.GetRankTable.
v1::RankTable RankTableOf(const v1::Report& report);

// This process, rank 0 of a group that is READY.
v1::ServedProcess ThisProcess(const std::string& host);

enum class ProcessState {
  kRuns,
  kGone,
  kNotVisible
};  // the last one: another machine or container
ProcessState FindProcess(const v1::ServedProcess& process);

// Writes "state": "lost" and the cause into the report at `path` if it still says that process
// `pid` serves. Ok if there is nothing to write; INVALID_ARGUMENT (exit code 2) when it cannot be
// written.
absl::Status MarkReportLost(const std::string& path, int64_t pid, const std::string& cause);

}  // namespace bulkhead
