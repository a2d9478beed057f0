// Expected duration of a step on this group's hardware, from its rows, tokens and context, as
// measured at start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "bulkhead/internal/step_plan.pb.h"

namespace bulkhead {

// In whole milliseconds; in whole seconds from 10 s on.
std::string StepTimeText(absl::Duration time);

struct StepShape {
  int64_t tokens = 0;      // padding included
  int64_t logit_rows = 0;  // tokens with logits
  double context = 0;      // (token, attended position) pairs
  bool draft = false;      // a draft model's step
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

// Target time of a step that computes prompts while sequences decode: their inter-token latency.
// Default: no limit.
struct StepTarget {
  StepEstimate estimate;
  absl::Duration itl;
};

// Chooses the number of prompt tokens of such a step.
class PrefillPace {
 public:
  PrefillPace() = default;
  explicit PrefillPace(const StepTarget& target) : target_(target) {}

  const StepEstimate& estimate() const { return target_.estimate; }
  // For a step that takes `decode_s` seconds without prompt tokens: at most `left`, limited so that
  // the step stays within the larger of the target and kDecodeTimes x decode_s; prompts thus get
  // most of the time if decodes alone come near the target.
  int PromptTokens(double decode_s, int left) const;
  // Such a step took `seconds` with `prompt_tokens`.
  void Record(double decode_s, int64_t prompt_tokens, double seconds);

 private:
  static constexpr double kDecodeTimes = 4;
  static constexpr int kLeastTokens = 64;  // time per token is about that of a full chunk

  StepTarget target_;
  double slowdown_ = 1;  // recent prompt token time / estimate
};

}  // namespace bulkhead
