// The rehearsal at the end of start-up: steps as large as the limits allow, so that every arena and
// every collective has worked once before READY, and the group knows how long a step takes here.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Collective, with equal limits, before the first real step. Runs one step of as many sequences as
// may run and one of a full chunk; a chunk that would take more than `patience` is not run but
// reckoned from the first step. The sequences share the first blocks of the pool, whose contents
// stay as undefined as they were. Returns the time of a full chunk, the same on every rank.
absl::StatusOr<absl::Duration> Rehearse(StepRunner& runner, const SchedulerLimits& limits,
                                        absl::Duration patience, GroupExchange& exchange,
                                        absl::Duration timeout);

// How many blocks of the pool the rehearsal uses.
int64_t RehearsalBlocks(const SchedulerLimits& limits);

}  // namespace bulkhead
