// StatusJson: the answer of /status: the state of the group for people and scripts, from the same
// reading as /metrics. docs/http.md lists the fields.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// `has_chats`: the model has a chat template. Any thread; waits for no step. UNAVAILABLE (STARTING,
// RANK_LOST); RESOURCE_EXHAUSTED (HOST_MEMORY) above quotas.metrics_bytes, which it shares with
// /metrics.
absl::StatusOr<std::string> StatusJson(ServiceCore& core, int64_t started_unix_s, bool has_chats);

}  // namespace bulkhead
