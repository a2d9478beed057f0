// PromptLogprobs: the prompt's tokens with their log probabilities, ranks and the top n, packed as
// its logits come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/engine/request.h"
#include "runtime/service/packed_message.h"

namespace bulkhead {

class PromptLogprobs final : public LogitsSink {
 public:
  // Tokens are packed as field number `field` of their message. `num_best`: n.
  PromptLogprobs(std::vector<TokenId> prompt, int num_best, int field);

  // INTERNAL if a logit is NaN or +inf.
  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override;

  // The rank loop's thread, or after the request's end. The pieces in order, each of whole tokens;
  // empties this.
  std::vector<std::string> TakePieces();

  // Maximum bytes that it holds, packed.
  static int64_t MaxBytes(int vocab_size, int64_t prompt_tokens, int num_best);

 private:
  void Pack(const GeneratedToken& token);

  const std::vector<TokenId> prompt_;
  const int num_best_;
  const int field_;
  int64_t next_ = 1;  // position of the first token that is not packed; rows may come again
  std::vector<std::string> pieces_;
  std::vector<TokenId> best_;
};

}  // namespace bulkhead
