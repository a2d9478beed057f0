#include "runtime/engine/prompt_score.h"

#include <cmath>

#include "runtime/engine/logits_row.h"

namespace bulkhead {

absl::Status PromptScore::OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                                 const float* logits) {
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(first_position + i);
    if (at >= logprobs_.size()) break;
    const auto row = absl::MakeConstSpan(logits + i * vocab_size, static_cast<size_t>(vocab_size));
    const TokenId most_likely = HasNoNanOrPositiveInf(row) ? ArgMax(row) : -1;
    if (most_likely < 0 || !std::isfinite(row[tokens_[at + 1]])) {
      return absl::InternalError("the model's logits are not finite numbers");
    }
    logprobs_[at] = RowLogprobs(row, row[most_likely]).Of(tokens_[at + 1]);
  }
  return absl::OkStatus();
}

double PromptScore::nll() const {
  double sum = 0;
  for (const float logprob : logprobs_) sum -= logprob;
  return sum;
}

}  // namespace bulkhead
