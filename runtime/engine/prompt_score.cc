#include "runtime/engine/prompt_score.h"

#include <algorithm>
#include <cmath>

namespace bulkhead {
namespace {

double LogProbability(const float* row, int64_t vocab_size, TokenId target) {
  const float most = *std::max_element(row, row + vocab_size);
  double sum = 0;
  for (int64_t i = 0; i < vocab_size; ++i) sum += std::exp(static_cast<double>(row[i]) - most);
  return static_cast<double>(row[target]) - most - std::log(sum);
}

}  // namespace

absl::Status PromptScore::OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                                 const float* logits) {
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(first_position + row);
    if (at >= logprobs_.size()) break;
    logprobs_[at] = LogProbability(logits + row * vocab_size, vocab_size, tokens_[at + 1]);
    if (!std::isfinite(logprobs_[at])) {
      return absl::InternalError("the model's logits are not finite numbers");
    }
  }
  return absl::OkStatus();
}

double PromptScore::nll() const {
  double sum = 0;
  for (const double logprob : logprobs_) sum -= logprob;
  return sum;
}

}  // namespace bulkhead
