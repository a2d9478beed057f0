#include "runtime/engine/weighted_tokens.h"

#include <algorithm>

#include "runtime/engine/logits_row.h"

namespace bulkhead {
namespace {

// A sum over ascending ids: the chunk's running sum plus the sum of all previous chunks.
struct ChunkedSum {
  double sum = 0;
  double chunk_sum = 0;
  int64_t chunk = 0;

  void Add(TokenId id, double weight) {
    if (id / kChunkIds != chunk) {
      sum += chunk_sum;
      chunk_sum = 0;
      chunk = id / kChunkIds;
    }
    chunk_sum += weight;
  }
  double Total() const { return sum + chunk_sum; }
};

double SumInOrder(const WeightedTokens& tokens) {
  ChunkedSum sum;
  for (int64_t i = 0; i < tokens.count; ++i) {
    if (tokens.weights[i] > 0) sum.Add(tokens.IdOf(i), tokens.weights[i]);
  }
  return sum.Total();
}

}  // namespace

void KeepTopP(const WeightedTokens& tokens, const float* logits, double top_p, double* bucket_sums,
              int32_t* members) {
  double* const weights = tokens.weights;
  const double target = top_p * SumInOrder(tokens);
  std::fill(bucket_sums, bucket_sums + kNumBuckets, 0.0);
  for (int64_t i = 0; i < tokens.count; ++i) bucket_sums[BucketOf(weights[i])] += weights[i];
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + bucket_sums[bucket] < target) mass += bucket_sums[bucket++];
  if (bucket == kNumBuckets) return;  // rounding: every token is needed
  // The cut is inside this bucket: walk through it, most likely first.
  int64_t num_members = 0;
  for (int64_t i = 0; i < tokens.count; ++i) {
    if (!(weights[i] > 0)) continue;
    const int own = BucketOf(weights[i]);
    if (own == bucket) members[num_members++] = static_cast<int32_t>(i);
    if (own > bucket) weights[i] = 0;
  }
  std::sort(members, members + num_members, [&](int32_t a, int32_t b) {
    return MoreLikely{logits}(tokens.IdOf(a), tokens.IdOf(b));
  });
  int64_t needed = 0;
  double in_bucket = 0;
  while (needed < num_members && mass + in_bucket < target) in_bucket += weights[members[needed++]];
  for (int64_t i = needed; i < num_members; ++i) weights[members[i]] = 0;
}

TokenId SampleInOrder(const WeightedTokens& tokens, double uniform) {
  const double target = uniform * SumInOrder(tokens);
  ChunkedSum sum;
  TokenId id = -1;
  for (int64_t i = 0; i < tokens.count; ++i) {
    if (!(tokens.weights[i] > 0)) continue;
    id = tokens.IdOf(i);
    sum.Add(id, tokens.weights[i]);
    if (sum.Total() > target) return id;
  }
  return id;  // the product was rounded up to the sum
}

}  // namespace bulkhead
