// Typed refusals: an absl::Status with google.rpc messages as payloads. A payload's URL is the type
// URL of its message, so that any layer can attach one and the conversion for a client copies them
// without knowing them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
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
inline constexpr char kMetadataTooLarge[] = "METADATA_TOO_LARGE";
inline constexpr char kRequestBytes[] = "REQUEST_BYTES";
inline constexpr char kSlowSender[] = "SLOW_SENDER";
inline constexpr char kTooManyCalls[] = "TOO_MANY_CALLS";
inline constexpr char kKvBudget[] = "KV_BUDGET";
inline constexpr char kPromptTooLong[] = "PROMPT_TOO_LONG";
inline constexpr char kMalformedRequest[] = "MALFORMED_REQUEST";
inline constexpr char kInvalidValue[] = "INVALID_VALUE";
inline constexpr char kUnsupportedParameter[] = "UNSUPPORTED_PARAMETER";
inline constexpr char kStructuredOutput[] = "STRUCTURED_OUTPUT";
inline constexpr char kModelNotFound[] = "MODEL_NOT_FOUND";
inline constexpr char kTextNotSupported[] = "TEXT_NOT_SUPPORTED";
inline constexpr char kDuplicateRequestId[] = "DUPLICATE_REQUEST_ID";
inline constexpr char kAborted[] = "ABORTED";
inline constexpr char kCancelled[] = "CANCELLED";
inline constexpr char kDeadline[] = "DEADLINE_EXCEEDED";
inline constexpr char kSlowReader[] = "SLOW_READER";
inline constexpr char kUnauthenticated[] = "UNAUTHENTICATED";
inline constexpr char kPermissionDenied[] = "PERMISSION_DENIED";
inline constexpr char kInternal[] = "INTERNAL";
}  // namespace reason

using Metadata = std::initializer_list<std::pair<std::string, std::string>>;

// `status` with google.rpc.ErrorInfo{reason, domain "bulkhead", metadata}; unchanged if ok or if it
// already has an ErrorInfo.
absl::Status WithReason(absl::Status status, absl::string_view reason, Metadata metadata = {});

// `status` with google.rpc.RetryInfo: retry after `delay`.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// Before the name of a message that is a payload.
inline constexpr char kPayloadUrl[] = "type.googleapis.com/";
// `status` with any message of google.rpc; replaces one of the same type.
void Attach(absl::Status& status, const google::protobuf::Message& message);

// ErrorInfo: empty if there is none.
google::rpc::ErrorInfo ErrorInfoOf(const absl::Status& status);
std::string ReasonOf(const absl::Status& status);
// RetryInfo.retry_delay.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

}  // namespace bulkhead
