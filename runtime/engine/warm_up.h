// The warm-up at the end of start-up: the largest steps that the limits and patience allow, so that
// every collective has been used before READY, and the time of a step is known.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/step_estimate.h"
#include "runtime/engine/step_runner.h"
#include "runtime/engine/watchdog.h"

namespace bulkhead {

// Equal on every rank.
struct WarmUpResult {
  StepEstimate estimate;
  int chunk_tokens = 0;   // prompt tokens of the largest step
  absl::Duration chunk;   // its time
  bool measured = false;  // true: measured; false: extrapolated from smaller steps
};

// Collective, with equal limits, before the first real step. Runs a step with max_num_seqs
// sequences and a full chunk; if that would exceed `patience`, smaller chunks and fewer sequences,
// whose times are extrapolated linearly, rather too long than too short. The sequences share the
// blocks of the pool, whose contents remain undefined. `now_ns`: monotonic.
absl::StatusOr<WarmUpResult> WarmUp(StepRunner& runner, const SchedulerLimits& limits,
                                    absl::Duration patience, GroupExchange& exchange,
                                    absl::Duration timeout, int64_t (*now_ns)());

// Collective, if a device samples and there are drafts: runs the largest step that verifies them.
absl::Status WarmUpDrafts(StepRunner& runner, const SchedulerLimits& limits, bool coordinator);

// The resulting step time limits: `given`, or ten times a full chunk, at least 60 s and at most 5
// min. If not given, a step with a larger estimate, such as a chunk with very long context, may
// take twice its estimate. `draft`: the draft model's result; its steps may be longer.
StepTimeLimits StepTimeLimitsFrom(const WarmUpResult& warm_up, std::optional<absl::Duration> given,
                                  const std::optional<WarmUpResult>& draft = std::nullopt);

// The minimum number of KV blocks for it.
int64_t WarmUpBlocks(const SchedulerLimits& limits);

}  // namespace bulkhead
