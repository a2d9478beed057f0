// What a step should take on this group's machines, from its rows, tokens and context, as measured
// at start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "bulkhead/internal/step_plan.pb.h"

namespace bulkhead {

// In whole milliseconds, from 10 s on in whole seconds.
std::string StepTimeText(absl::Duration time);

struct StepShape {
  int64_t tokens = 0;      // padding included
  int64_t logit_rows = 0;  // tokens whose logits are wanted
  double context = 0;      // pairs of a token and a position that it attends to
};

StepShape ShapeOf(const internal::StepPlan& plan);

// A line through the times of two steps, and what rows and context add. Default: every step takes
// no time.
struct StepEstimate {
  double least_s = 0;  // of any step: the weights are read
  double fixed_s = 0;  // of the line; may be negative
  double token_s = 0;
  double logit_row_s = 0;
  double context_s = 0;  // of one pair

  absl::Duration Of(const StepShape& shape) const;
};

}  // namespace bulkhead
