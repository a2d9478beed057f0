// A report that `serve --report` or `plan --json` wrote, read back.
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
  std::string lost;       // why the group that wrote it ended, where it was lost
  std::string state;      // of a server's: serving, ended or lost; else empty
  ServedProcess process;  // of a server's
  // Where it does not fit: the rank and term, what was needed and what was left.
  int short_rank = 0;
  std::string short_term;
  int64_t short_bytes = 0;
  int64_t needed_bytes = 0;
  int64_t left_bytes = 0;
  std::vector<std::string> remedies;
  std::string no_remedy;
};

// NOT_FOUND or INVALID_ARGUMENT naming `path` and, where it can, the field, with exit code 2.
absl::StatusOr<ReportFile> ReadReportFile(const std::string& path);

// What a person should know of it. Where it says that its server serves, that process is looked
// for.
std::string ExplainReport(const ReportFile& report);

}  // namespace bulkhead
