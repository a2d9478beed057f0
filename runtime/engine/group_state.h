// Whether a group takes requests, and the status for a client if it does not.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {

enum class GroupState { kStarting, kServing, kDraining, kLost };

// Retry delay: until another server, or this one after its restart, may take the request.
inline constexpr absl::Duration kRestartRetry = absl::Seconds(5);

// UNAVAILABLE (STARTING, DRAINING, RANK_LOST with the message of `failure`) with a retry delay; ok
// while the group serves.
absl::Status WhyClosed(GroupState state, const absl::Status& failure = absl::OkStatus(),
                       Metadata metadata = {});

}  // namespace bulkhead
