#include "runtime/service/refusal.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxMessageBytes = 1024;

// At most `limit` bytes, never splitting a character: gRPC requires UTF-8 messages.
std::string TruncateMessage(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  return absl::StrCat(WholeCharacters(text, limit), "...");
}

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view description,
                          absl::string_view reason, Metadata metadata) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", description));
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field(std::string(field));
  violation->set_description(TruncateMessage(description, kMaxMessageBytes));
  Attach(status, bad);
  return WithReason(std::move(status), reason, metadata);
}

absl::Status WhyTooLarge(size_t message_bytes, int64_t limit_bytes) {
  if (static_cast<int64_t>(message_bytes) <= limit_bytes) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the request has ", message_bytes,
                                                              " bytes, more than the limit of ",
                                                              limit_bytes, "; send a shorter one")),
                    reason::kMessageTooLarge,
                    {{"value", absl::StrCat(message_bytes)}, {"limit", absl::StrCat(limit_bytes)}});
}

absl::Status HostIsShortOfMemory() {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(
                     "rank 0's host is short of memory and accepts no new calls; try again later"),
                 reason::kHostMemory),
      absl::Seconds(1));
}

absl::Status IsStopping() {
  return WithReason(absl::UnavailableError("the server is stopping"), reason::kStopping);
}

absl::Status ClientGone(bool deadline_passed) {
  if (!deadline_passed) {
    return WithReason(absl::CancelledError("cancelled by the client"), reason::kCancelled);
  }
  return WithReason(absl::DeadlineExceededError("the call's deadline has passed"),
                    reason::kDeadline);
}

std::optional<std::string> RetryPushback(const absl::Status& status) {
  const std::optional<absl::Duration> delay = RetryAfter(status);
  if (delay.has_value()) return absl::StrCat(absl::ToInt64Milliseconds(*delay));
  if (status.code() == absl::StatusCode::kResourceExhausted) return "-1";  // do not retry
  return std::nullopt;
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(TruncateMessage(status.message(), kMaxMessageBytes));
  status.ForEachPayload([&out](absl::string_view url, const absl::Cord& value) {
    if (!absl::StartsWith(url, kPayloadUrl)) return;
    auto* detail = out.add_details();
    detail->set_type_url(std::string(url));
    detail->set_value(std::string(value));
  });
  return out;
}

std::string Quoted(absl::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, limit)), cut ? "...\"" : "\"");
}

}  // namespace bulkhead
