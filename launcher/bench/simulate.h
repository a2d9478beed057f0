// `bench simulate`: what a step costs rank 0 of a group that is larger than what is at hand.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/bench/simulate_result.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// One group: the real scheduler and block pool run all requests to their ends, on a clock that
// `cost` (complete) and rank 0's own real cost move on.
SimulatedRun Simulate(const SimulateOptions& options, const StepCost& cost, int ranks,
                      int max_num_seqs);

// The status carries the exit code.
absl::Status RunSimulate(const SimulateOptions& options);

}  // namespace bulkhead
