// The warm-up at the end of start-up: steps as large as the limits allow, so that every arena and
// every collective has worked once before READY, and the group knows how long a step takes here.
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
  int chunk_tokens = 0;   // of the largest step
  absl::Duration chunk;   // its time
  bool measured = false;  // it was run; else its time is estimated from smaller ones
};

// Collective, with equal limits, before the first real step. Runs a step of as many sequences as
// may run and one of a full chunk; where that would take more than `patience`, smaller ones, whose
// times a line goes through. The sequences share the blocks of the pool, whose contents stay as
// undefined as they were. `now_ns`: monotonic.
absl::StatusOr<WarmUpResult> WarmUp(StepRunner& runner, const SchedulerLimits& limits,
                                    absl::Duration patience, GroupExchange& exchange,
                                    absl::Duration timeout, int64_t (*now_ns)());

// What a step may take then: `given`, or ten times a full chunk, and at least 60 s and at most 5
// min. Where it is not given, a step of which more is expected, such as a chunk behind a very long
// context, has twice its estimate.
StepTimeLimits StepTimeLimitsFrom(const WarmUpResult& warm_up, std::optional<absl::Duration> given);

// The least blocks that the pool must have for it.
int64_t WarmUpBlocks(const SchedulerLimits& limits);

}  // namespace bulkhead
