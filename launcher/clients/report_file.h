// Reads a report of `serve --report` or `plan --json`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "launcher/served_process.h"

namespace bulkhead {

struct ReportFile {
  bool fits = false;
  v1::RankTable ranks;
  std::string lost;       // why the group was lost
  std::string state;      // of a server: serving, ended or lost; else empty
  ServedProcess process;  // of a server
  // If it does not fit: the rank and category, needed and available bytes.
  int short_rank = 0;
  std::string short_term;
  int64_t short_bytes = 0;
  int64_t needed_bytes = 0;
  int64_t left_bytes = 0;
  std::vector<std::string> remedies;
  std::string no_remedy;
};

// NOT_FOUND or INVALID_ARGUMENT naming `path` and, if possible, the field, with exit code 2.
absl::StatusOr<ReportFile> ReadReportFile(const std::string& path);

// A summary for people. If its state is serving, checks whether the process still exists.
std::string ExplainReport(const ReportFile& report);

}  // namespace bulkhead
