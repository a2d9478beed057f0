#include "runtime/engine/step_estimate.h"

#include <algorithm>

namespace bulkhead {

std::string StepTimeText(absl::Duration time) {
  const absl::Duration unit = time >= absl::Seconds(10) ? absl::Seconds(1) : absl::Milliseconds(1);
  return absl::FormatDuration(absl::Trunc(time, unit));
}

StepShape ShapeOf(const internal::StepPlan& plan) {
  StepShape shape;
  shape.tokens = plan.padded_tokens();
  shape.draft = plan.draft();
  // A damaged plan is refused later, when it is submitted.
  const int seqs = std::min({plan.slot_size(), plan.num_tokens_size(), plan.start_position_size(),
                             plan.num_logits_size()});
  for (int s = 0; s < seqs; ++s) {
    const double n = plan.num_tokens(s);
    shape.logit_rows += plan.num_logits(s);
    shape.context += n * (plan.start_position(s) + (n + 1) / 2);
  }
  return shape;
}

absl::Duration StepEstimate::Of(const StepShape& shape) const {
  const double line_s = fixed_s + token_s * static_cast<double>(shape.tokens);
  return absl::Seconds(std::max(least_s, line_s) +
                       logit_row_s * static_cast<double>(shape.logit_rows) +
                       context_s * shape.context);
}

int PrefillPace::PromptTokens(double decode_s, int left) const {
  if (target_.itl <= absl::ZeroDuration() || target_.estimate.token_s <= 0) return left;
  const double target_s = std::max(absl::ToDoubleSeconds(target_.itl), kDecodeTimes * decode_s);
  const double tokens = (target_s - decode_s) / (target_.estimate.token_s * slowdown_);
  return static_cast<int>(std::clamp<double>(tokens, std::min(kLeastTokens, left), left));
}

void PrefillPace::Record(double decode_s, int64_t prompt_tokens, double seconds) {
  const double estimate_s = target_.estimate.token_s * static_cast<double>(prompt_tokens);
  if (estimate_s <= 0) return;
  // One delayed step says little about the next ones.
  slowdown_ += (std::clamp((seconds - decode_s) / estimate_s, 0.25, 4.0) - slowdown_) / 8;
}

}  // namespace bulkhead
