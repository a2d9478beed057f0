#include "comm/status_codec.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "memory/exit_code.h"

namespace bulkhead {

std::string EncodeStatus(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", static_cast<int>(ExitCodeOf(status)),
                      " ", status.message());
}

absl::Status DecodeStatus(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  int code = 0;
  int exit_code = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &code) ||
      !absl::SimpleAtoi(parts[1], &exit_code)) {
    return absl::InternalError(absl::StrCat("not an encoded status: '", text.substr(0, 80), "'"));
  }
  return WithExitCode(absl::Status(static_cast<absl::StatusCode>(code), parts[2]),
                      static_cast<ExitCode>(exit_code));
}

}  // namespace bulkhead
