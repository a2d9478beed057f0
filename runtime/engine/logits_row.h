// Orders, weights and log probabilities of one row of logits. Bit-identical on every x86-64, like
// the Sampler: sums use fixed chunks of ids, and exp and log are our own.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "base/arithmetic.h"
#include "base/token_sampling.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// More likely first, ties to the lower id.
struct MoreLikely {
  const float* logits;
  bool operator()(TokenId a, TokenId b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

// -inf if `logits` is empty.
float MaxOf(absl::Span<const float> logits);

bool HasNoNanOrPositiveInf(absl::Span<const float> logits);

// The most likely id; -1 if every id is -inf.
TokenId ArgMax(absl::Span<const float> logits);

// The `count` most likely ids into `best` [count], most likely first; returns how many there are.
inline constexpr int64_t kHeapMax = 2048;  // maximum `count`
int64_t SelectBest(absl::Span<const float> logits, int64_t count, TokenId* best);

// The largest logits of groups of ids: a chunk of kChunkIds ids has kGroups groups, group g every
// kGroups-th id of the chunk from its g-th one on.
inline constexpr int64_t kGroups = 64;
constexpr int64_t NumChunks(int64_t vocab_size) { return CeilDiv(vocab_size, kChunkIds); }
// Maxima of chunks [begin, end), in `maxima` [NumChunks, kGroups], -inf for a group without ids.
// False: one of their logits is NaN or +inf.
bool FindMaxima(absl::Span<const float> logits, int64_t begin, int64_t end, float* maxima);

// The lowest id of the largest logit, which is not -inf.
TokenId MostLikely(absl::Span<const float> logits, absl::Span<const float> maxima);

// The ids of the chunks [begin, end) whose logits are in [least, most], ascending, into `ids`;
// returns how many.
int64_t CollectBetween(absl::Span<const float> logits, const float* maxima, int64_t begin,
                       int64_t end, float least, float most, TokenId* ids);

// Sets logits[i] to -inf unless bit i % 32 of mask[i / 32] is set.
void KeepMasked(const uint32_t* mask, absl::Span<float> logits);

// weights[i] = exp((logits[i] - max) * per_temperature), for logits of at most `max`; weights below
// `least`, and weights of logits below `least_logit`, are 0.
void ComputeWeights(const float* logits, int64_t count, double max, double per_temperature,
                    double least, float least_logit, double* weights);

// ComputeWeights with least 0 and other bits: relative error at most 2^-36, and weights below
// 2^-119 may be 0. False, with nothing done, if the CPU cannot do it faster.
bool ComputeWeightsQuickly(const float* logits, int64_t count, double max, double per_temperature,
                           float least_logit, double* weights);

// Sums in lane order, not id order: of all weights, and of those that are at least `least`.
double SumInLanes(const double* weights, int64_t count);
double SumInLanesAtLeast(double least, const double* weights, int64_t count);

// Maximum relative difference of two sums of `count` weights in any order, quick weights or exact.
constexpr double SumError(int64_t count) {
  return 2 * static_cast<double>(count) * 0x1p-53 + 0x1p-35;
}

// sums[c] of kChunkIds weights each (the last chunk: of the remainder), in ascending order.
void SumChunks(const double* weights, int64_t count, double* sums);

// The log probabilities of a row, as float.
class RowLogprobs {
 public:
  // `logits` without NaN and +inf, at least one finite, `max` the largest; they outlive this.
  RowLogprobs(absl::Span<const float> logits, float max);

  float Of(TokenId id);
  // 1: the most likely id.
  int RankOf(TokenId id) const;

 private:
  absl::Span<const float> logits_;
  double max_;
  double log_sum_;    // of the weights
  double error_ = 0;  // maximum distance from the log of the sum in id order
};

}  // namespace bulkhead
