// LogitsProcessor: changes one request's logits before its tokens are sampled, on rank 0's host.
// The steps and their order are those of vLLM's v1 sampler: allowed ids, bad words, (min_tokens'
// bans, by the Sampler: no later step raises -inf), bias, then repetition, frequency and presence
// penalty. Arithmetic in float, as transformers' RepetitionPenaltyLogitsProcessor and vLLM's
// penalties have it. What it knows follows from the request's tokens alone, so that neither ranks,
// batches and chunks nor preemption and resumption change a bit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

class LogitsProcessor {
 public:
  explicit LogitsProcessor(LogitsParams params);

  // Bytes of `params` and of all that is kept for a request of at most `max_total_tokens` tokens.
  static int64_t MaxBytes(const LogitsParams& params, int64_t max_total_tokens);

  // Once, before the first row: the prompt, and behind it what was generated already. Later tokens
  // are added one by one, up to `max_total_tokens` in all.
  void Begin(absl::Span<const TokenId> tokens, int64_t prompt_tokens, int64_t max_total_tokens);
  void Add(TokenId generated);

  // The row from which the next token is sampled, [V], without NaN and +inf, in place; -inf
  // excludes an id. Results beyond the largest float become it.
  void Apply(absl::Span<float> logits) const;

 private:
  struct Count {
    TokenId id = 0;
    int32_t generated = 0;  // how often; 0: in the prompt alone
  };
  void KeepAllowed(absl::Span<float> logits) const;
  void BanWords(absl::Span<float> logits) const;
  void Penalise(absl::Span<float> logits) const;

  LogitsParams params_;
  size_t longest_bad_word_ = 0;  // in tokens
  std::vector<Count> counts_;    // ascending ids; empty without a penalty
  std::vector<TokenId> last_;    // generated ones, as many as bad words need
};

}  // namespace bulkhead
