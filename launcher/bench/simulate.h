// `bench simulate`: a step's cost on rank 0 for groups larger than the available machines.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The first three, from the output of `bench throughput --json`: the median step of the smallest
// batch and its growth up to the largest, and the best prefill rate. INVALID_ARGUMENT if it lacks
// them.
absl::StatusOr<StepCost> CostFrom(absl::string_view throughput_json);
// `first`, with absent values from `second`.
StepCost Merged(const StepCost& first, const StepCost& second);

// One step's real processor time on rank 0, in seconds.
struct StepSample {
  double plan_s = 0;
  double encode_s = 0;
  double hand_out_s = 0;  // a copy of the plan for its own node and each node it sends to
  double commit_s = 0;
  int64_t queued = 0;  // requests that waited
  int64_t drawn = 0;   // tokens
  int64_t plan_bytes = 0;
  double total_s() const { return plan_s + encode_s + hand_out_s + commit_s; }
};

struct SimulatedRun {
  int ranks = 0;
  int max_num_seqs = 0;
  int copies = 0;           // of each plan
  double group_s = 0;       // simulated time from the first arrival to the last token
  double rank0_s = 0;       // part of group_s: rank 0's real cost in all steps
  double submit_s = 0;      // mean real time of accepting a request
  double tokens_per_s = 0;  // generated tokens, in simulated time
  std::vector<StepSample> steps;
};

// One group: the real scheduler and block pool run all requests to their ends, on a clock advanced
// by `cost` (complete) and rank 0's own real cost.
SimulatedRun Simulate(const SimulateOptions& options, const StepCost& cost, int ranks,
                      int max_num_seqs);

// The status carries the exit code.
absl::Status RunSimulate(const SimulateOptions& options);

}  // namespace bulkhead
