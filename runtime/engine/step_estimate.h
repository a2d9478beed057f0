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

// How long a step may take that computes prompts while sequences decode, which wait for it: a
// target of their inter-token latency. Default: any time.
struct StepTarget {
  StepEstimate estimate;
  absl::Duration itl;
};

// How many prompt tokens such a step has.
class PrefillPace {
 public:
  PrefillPace() = default;
  explicit PrefillPace(const StepTarget& target) : target_(target) {}

  const StepEstimate& estimate() const { return target_.estimate; }
  // Of a step that takes `decode_s` without them: at most `left`, and as many as keep it within the
  // target or within kDecodeTimes of that, so that prompts have most of the time where decodes
  // alone come near the target.
  int PromptTokens(double decode_s, int left) const;
  // With `prompt_tokens` it took `seconds`.
  void Record(double decode_s, int64_t prompt_tokens, double seconds);

 private:
  static constexpr double kDecodeTimes = 4;
  static constexpr int kLeastTokens = 64;  // about as fast a token as a whole chunk's

  StepTarget target_;
  double slowdown_ = 1;  // what prompt tokens took lately, in units of the estimate
};

}  // namespace bulkhead
