// StopRule: when token ids end a generation. Stop strings are handled by the text stream.
#pragma once

#include <optional>
#include <vector>

#include "runtime/engine/request.h"

namespace bulkhead {

struct TokenFinish {
  FinishReason reason = FinishReason::kMaxTokens;
  std::optional<TokenId> stop_token_id;  // with kEos and kStopToken
};

class StopRule {
 public:
  // `max_total_tokens`: max_model_len.
  StopRule(StoppingParams stopping, const std::vector<TokenId>& eos_ids, int64_t max_total_tokens);

  // Whether the generation ends with `token`, the `num_generated`-th (1 for the first), which makes
  // the sequence `total_tokens` long. A stopping token takes precedence over a limit, max_tokens
  // over max_model_len.
  std::optional<TokenFinish> Check(TokenId token, int64_t num_generated,
                                   int64_t total_tokens) const;
  // Whether a limit ends the generation at this length regardless of the token.
  bool AtLimit(int64_t num_generated, int64_t total_tokens) const;
  // Whether stopping ids must not be sampled as the `num_generated`-th token.
  bool Bans(int64_t num_generated) const { return num_generated <= stopping_.min_tokens; }
  // End-of-sequence ids, sorted; none with ignore_eos.
  const std::vector<TokenId>& eos_ids() const { return eos_ids_; }
  // All stopping ids, sorted.
  const std::vector<TokenId>& stop_ids() const { return stop_ids_; }
  const StoppingParams& stopping() const { return stopping_; }

 private:
  StoppingParams stopping_;
  std::vector<TokenId> eos_ids_;   // sorted; empty with ignore_eos
  std::vector<TokenId> stop_ids_;  // sorted
  int64_t max_total_tokens_;
};

}  // namespace bulkhead
