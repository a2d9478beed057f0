// PromptScore: log probabilities of a given text, token by token.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

class PromptScore final : public LogitsSink {
 public:
  explicit PromptScore(std::vector<TokenId> tokens)
      : tokens_(std::move(tokens)), logprobs_(tokens_.empty() ? 0 : tokens_.size() - 1) {}

  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override;

  const std::vector<TokenId>& tokens() const { return tokens_; }
  // After prefill: ln p(tokens[i + 1] | tokens[0 .. i]) from the softmax of the logits, computed
  // like a sampled token's: equal on all CPUs.
  absl::Span<const float> logprobs() const { return logprobs_; }
  double nll() const;  // sum of -ln p

 private:
  const std::vector<TokenId> tokens_;
  std::vector<float> logprobs_;
};

}  // namespace bulkhead
