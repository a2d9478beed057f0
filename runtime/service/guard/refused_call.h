// The guard's answer to a call that gRPC does not know, or no longer knows: a trailers-only
// response, as gRPC clients read it. Its header block names every field in full and touches no
// table, so that it may come between any two of gRPC's own blocks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// UNAVAILABLE (TOO_MANY_CALLS): the call has not begun.
absl::Status TooManyCalls(int64_t open_calls, int limit);
// The same, for a connection with `incomplete` calls that have not arrived completely.
absl::Status TooManyIncompleteCalls(int incomplete, absl::string_view why);
// RESOURCE_EXHAUSTED (METADATA_TOO_LARGE).
absl::Status MetadataTooLarge(int64_t bytes, int64_t limit_bytes);
// RESOURCE_EXHAUSTED (REQUEST_BYTES).
absl::Status NoRoomForBody(int64_t bytes, int64_t limit_bytes);
// RESOURCE_EXHAUSTED (SLOW_SENDER).
absl::Status BodyTooSlow(int64_t received_bytes);
// RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE).
absl::Status BodyLongerThanItSays(int64_t received_bytes, int64_t claimed_bytes);

// HEADERS with `status`, which is not ok, and RST_STREAM after it unless the client has ended the
// stream.
std::string RefusalFrames(uint32_t stream, const absl::Status& status, bool client_ended);

}  // namespace bulkhead
