// What `bench simulate` found, and what it assumes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/bench/token_cost.h"

namespace bulkhead {

// How long a step takes a group; absent ones: of a measurement, else the defaults of the help.
struct StepCost {
  std::optional<double> step_us, decode_row_us, prompt_token_us, message_us;
};

// The first three from what `bench throughput --json` prints: the median step of the smallest batch
// and its growth up to the largest, and the best prefill rate. INVALID_ARGUMENT when they cannot be
// had from it.
absl::StatusOr<StepCost> CostFrom(absl::string_view throughput_json);
// `first`, and where it says nothing `second`.
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
  int copies = 0;           // of a plan
  double group_s = 0;       // simulated time from the first arrival to the last token
  double rank0_s = 0;       // of it rank 0's real cost, in all steps
  double submit_s = 0;      // real time of accepting a request, the mean
  double tokens_per_s = 0;  // generated ones, simulated
  std::vector<StepSample> steps;
};

struct SimulateFacts {
  std::string version, date, cpu;
  int requests = 0;
  StepCost cost;  // complete
  TokenCost token_cost;
};

// A row per run and range of the queue: medians, and the 99th percentile of the whole step. Drawing
// and detokenising stand apart: a GPU can draw, and a measured step has both in it.
std::string SimulateTable(const SimulateFacts& facts, const std::vector<SimulatedRun>& runs);
std::string SimulateJson(const SimulateFacts& facts, const std::vector<SimulatedRun>& runs);
// Cost by sequences, a line per size of the group; both axes logarithmic.
std::string SimulateSvg(const std::vector<SimulatedRun>& runs);

}  // namespace bulkhead
