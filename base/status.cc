#include "base/status.h"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"

namespace bulkhead {
namespace {

constexpr char kExitCodeUrl[] = "bulkhead/exit_code";
constexpr char kLostRankUrl[] = "bulkhead/lost_rank";

}  // namespace

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "bulkhead: bug: %s:%d: check failed: %s\n", file, line, what);
  std::fflush(nullptr);
  _exit(static_cast<int>(ExitCode::kBug));
}

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok()) {
    status.SetPayload(kExitCodeUrl, absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  int code = 0;
  const auto payload = status.GetPayload(kExitCodeUrl);
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) {
    return static_cast<ExitCode>(code);
  }
  return ExitCode::kBug;
}

absl::Status WithLostRank(absl::Status status, const LostRank& lost) {
  if (!status.ok() && lost.rank.has_value()) {
    status.SetPayload(kLostRankUrl, absl::Cord(absl::StrCat(*lost.rank, " ", lost.host)));
  }
  return status;
}

LostRank LostRankOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kLostRankUrl);
  if (!payload.has_value()) return {};
  const std::string text(*payload);
  const size_t space = text.find(' ');
  int rank = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(0, space), &rank)) return {};
  return {rank, text.substr(space + 1)};
}

}  // namespace bulkhead
