// Expected duration of a step on this group's hardware, from its rows, tokens and context, as
// measured at start.
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
  int64_t logit_rows = 0;  // tokens with logits
  double context = 0;      // (token, attended position) pairs
  bool draft = false;      // of the draft model
};

StepShape ShapeOf(const internal::StepPlan& plan);

// A line through the times of two steps, plus the cost of rows and context. Default: every step
// takes no time.
struct StepEstimate {
  double least_s = 0;  // minimum of any step: reading the weights
  double fixed_s = 0;  // intercept of the line; may be negative
  double token_s = 0;
  double logit_row_s = 0;
  double context_s = 0;  // per pair

  absl::Duration Of(const StepShape& shape) const;
};

}  // namespace bulkhead
