// Refusals of the service, and the part of a refusal that a client gets: the payloads in the
// trailer grpc-status-details-bin. Independent of gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {

// INVALID_ARGUMENT "`field`: `description`" with google.rpc.BadRequest and ErrorInfo{reason}.
absl::Status InvalidField(absl::string_view field, absl::string_view description,
                          absl::string_view reason = reason::kInvalidValue, Metadata metadata = {});

// RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE); ok within the limit.
absl::Status WhyTooLarge(size_t message_bytes, int64_t limit_bytes);
// RESOURCE_EXHAUSTED (HOST_MEMORY).
absl::Status HostIsShortOfMemory();

// UNAVAILABLE (STOPPING).
absl::Status IsStopping();

// CANCELLED by the client, or DEADLINE_EXCEEDED: for a call whose client no longer waits.
absl::Status ClientGone(bool deadline_passed = false);

// The trailer that tells gRPC clients when to retry, or not to; none leaves the choice to them.
inline constexpr char kRetryPushbackKey[] = "grpc-retry-pushback-ms";
std::optional<std::string> RetryPushback(const absl::Status& status);

// The status on the wire: code, message and the payloads that are messages. The message is
// truncated to 1 KiB, since clients drop trailers of more than 8 KiB.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// Untrusted text for a message: escaped, truncated to `limit` bytes.
std::string Quoted(absl::string_view text, size_t limit = 64);

}  // namespace bulkhead
