#include "comm/status_codec.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace bulkhead {

// "CODE PAYLOADS", a line "URL VALUE" per payload, and the message, the only part that may be
// truncated in transit.
std::string EncodeStatus(const absl::Status& status) {
  int num_payloads = 0;
  std::string payloads;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (url == kAgreedUrl) return;
    ++num_payloads;
    absl::StrAppend(&payloads, url, " ", absl::CEscape(std::string(payload)), "\n");
  });
  return absl::StrCat(static_cast<int>(status.code()), " ", num_payloads, "\n", payloads,
                      status.message());
}

absl::Status DecodeStatus(absl::string_view text) {
  const absl::Status malformed =
      absl::InternalError(absl::StrCat("not an encoded status: '", text.substr(0, 80), "'"));
  const std::pair<absl::string_view, absl::string_view> head_and_rest =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::pair<absl::string_view, absl::string_view> head =
      absl::StrSplit(head_and_rest.first, absl::MaxSplits(' ', 1));
  int code = 0;
  int num_payloads = 0;
  if (!absl::SimpleAtoi(head.first, &code) || !absl::SimpleAtoi(head.second, &num_payloads) ||
      num_payloads < 0 || num_payloads > kMaxPayloads) {
    return malformed;
  }
  const std::vector<absl::string_view> lines =
      absl::StrSplit(head_and_rest.second, absl::MaxSplits('\n', num_payloads));
  if (lines.size() != static_cast<size_t>(num_payloads) + 1) return malformed;
  absl::Status status(static_cast<absl::StatusCode>(code), lines.back());
  for (int i = 0; i < num_payloads; ++i) {
    const std::pair<absl::string_view, absl::string_view> payload =
        absl::StrSplit(lines[i], absl::MaxSplits(' ', 1));
    std::string value;
    if (!absl::CUnescape(payload.second, &value)) return malformed;
    status.SetPayload(payload.first, absl::Cord(value));
  }
  return status;
}

}  // namespace bulkhead
