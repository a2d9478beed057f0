// Weighted tokens: the ones that top-p keeps, and the one that a random number selects. Sums are in
// the order of ids, so that every machine samples the same token; kernels/sample/cuda.cu uses the
// same order.
#pragma once

#include <cstdint>

#include "base/token_sampling.h"
#include "runtime/engine/request.h"

namespace bulkhead {

struct WeightedTokens {
  const TokenId* ids = nullptr;  // [count] ascending; null: 0, 1, 2 ...
  double* weights = nullptr;     // [count] in [0, 1], at least one > 0; 0: cannot be sampled
  int64_t count = 0;

  TokenId IdOf(int64_t i) const { return ids == nullptr ? static_cast<TokenId>(i) : ids[i]; }
};

// Keeps the fewest most likely tokens whose share reaches `top_p` (< 1); other weights become 0.
// `bucket_sums` [kNumBuckets] and `members` [count] are scratch.
void KeepTopP(const WeightedTokens& tokens, const float* logits, double top_p, double* bucket_sums,
              int32_t* members);

// The first token, by id, at which the running sum exceeds `uniform` times the total.
TokenId SampleInOrder(const WeightedTokens& tokens, double uniform);

}  // namespace bulkhead
