// Tokens with weights, and which of them top-p keeps and a random number falls on. Sums are in the
// order of ids: this order decides what is sampled, on every machine. kernels/sample/cuda.cu has
// the same one.
#pragma once

#include <cstdint>

#include "base/token_sampling.h"
#include "runtime/engine/request.h"

namespace bulkhead {

struct WeightedTokens {
  const TokenId* ids = nullptr;  // [count] ascending; null: 0, 1, 2 ...
  double* weights = nullptr;     // [count] in (0, 1], at least one; 0: cannot be sampled
  int64_t count = 0;

  TokenId IdOf(int64_t i) const { return ids == nullptr ? static_cast<TokenId>(i) : ids[i]; }
};

// Keeps the shortest run of the likeliest whose share reaches `top_p`, less than 1; weights of the
// others become 0. `bucket_sums` [kNumBuckets] and `members` [count] are scratch.
void KeepTopP(const WeightedTokens& tokens, const float* logits, double top_p, double* bucket_sums,
              int32_t* members);

// The first token, by id, at which the running sum exceeds `uniform` of the whole.
TokenId SampleInOrder(const WeightedTokens& tokens, double uniform);

}  // namespace bulkhead
