// Typed refusals: an absl::Status with the google.rpc messages for the trailer
// grpc-status-details-bin as payloads. A payload's URL is the type URL of its message, so that any
// layer can attach one and the conversion copies them without knowing them. Independent of gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"

namespace bulkhead {

// google.rpc.ErrorInfo.reason, for programs to branch on. The names are part of the public
// interface.
namespace reason {
inline constexpr char kStarting[] = "STARTING";
inline constexpr char kDraining[] = "DRAINING";
inline constexpr char kRankLost[] = "RANK_LOST";
inline constexpr char kStopping[] = "STOPPING";
inline constexpr char kQueueFull[] = "QUEUE_FULL";
inline constexpr char kAnswerBudget[] = "ANSWER_BUDGET";
inline constexpr char kHostMemory[] = "HOST_MEMORY";
inline constexpr char kMessageTooLarge[] = "MESSAGE_TOO_LARGE";
inline constexpr char kRequestBytes[] = "REQUEST_BYTES";
inline constexpr char kSlowSender[] = "SLOW_SENDER";
inline constexpr char kTooManyCalls[] = "TOO_MANY_CALLS";
inline constexpr char kKvBudget[] = "KV_BUDGET";
inline constexpr char kPromptTooLong[] = "PROMPT_TOO_LONG";
inline constexpr char kMalformedRequest[] = "MALFORMED_REQUEST";
inline constexpr char kInvalidValue[] = "INVALID_VALUE";
inline constexpr char kUnsupportedParameter[] = "UNSUPPORTED_PARAMETER";
inline constexpr char kModelNotFound[] = "MODEL_NOT_FOUND";
inline constexpr char kTextNotSupported[] = "TEXT_NOT_SUPPORTED";
inline constexpr char kDuplicateRequestId[] = "DUPLICATE_REQUEST_ID";
inline constexpr char kAborted[] = "ABORTED";
inline constexpr char kCancelled[] = "CANCELLED";
inline constexpr char kDeadline[] = "DEADLINE_EXCEEDED";
inline constexpr char kSlowReader[] = "SLOW_READER";
inline constexpr char kInternal[] = "INTERNAL";
}  // namespace reason

using Metadata = std::initializer_list<std::pair<std::string, std::string>>;

// `status` with google.rpc.ErrorInfo{reason, domain "bulkhead", metadata}; unchanged if ok or if it
// already has an ErrorInfo.
absl::Status WithReason(absl::Status status, absl::string_view reason, Metadata metadata = {});

// `status` with google.rpc.RetryInfo: retry after `delay`.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// INVALID_ARGUMENT "`field`: `description`" with google.rpc.BadRequest and ErrorInfo{reason}.
absl::Status InvalidField(absl::string_view field, absl::string_view description,
                          absl::string_view reason = reason::kInvalidValue, Metadata metadata = {});

// RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE); ok within the limit.
absl::Status WhyTooLarge(size_t message_bytes, int64_t limit_bytes);
// RESOURCE_EXHAUSTED (HOST_MEMORY).
absl::Status HostIsShortOfMemory();

// ErrorInfo.reason, or empty.
std::string ReasonOf(const absl::Status& status);
// RetryInfo.retry_delay.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

// The trailer that tells gRPC clients when to retry, or not to; none leaves the choice to them.
inline constexpr char kRetryPushbackKey[] = "grpc-retry-pushback-ms";
std::optional<std::string> RetryPushback(const absl::Status& status);

// The status on the wire: code, message and the payloads that are messages. The message is
// truncated to 1 KiB, since clients drop trailers of more than 8 KiB.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// Untrusted text for a message: escaped, truncated to `limit` bytes.
std::string Quoted(absl::string_view text, size_t limit = 64);

}  // namespace bulkhead
