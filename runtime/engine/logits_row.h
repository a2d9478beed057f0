// Orders and log probabilities of one row of logits. Bit-identical on every x86-64, as the
// Sampler's: sums use fixed chunks of ids, and exp and log are our own.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// More likely first, ties to the lower id.
struct MoreLikely {
  const float* logits;
  bool operator()(TokenId a, TokenId b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

// Calls visit(begin, end) for the runs of ids between the banned ones, which ascend.
template <typename Visit>
void ForAllowedRuns(int64_t vocab_size, absl::Span<const TokenId> banned, Visit visit) {
  int64_t begin = 0;
  for (const TokenId id : banned) {
    if (id < begin || id >= vocab_size) continue;
    visit(begin, int64_t{id});
    begin = int64_t{id} + 1;
  }
  visit(begin, vocab_size);
}

bool HasNoNanOrPositiveInf(absl::Span<const float> logits);

// The most likely id; -1 if every id is banned or -inf.
TokenId ArgMax(absl::Span<const float> logits, absl::Span<const TokenId> banned);

// The `count` most likely ids that are not banned into `best`, most likely first; returns how many.
// `best` has room for all ids, or for `count` if that is at most kHeapMax.
inline constexpr int64_t kHeapMax = 2048;  // up to this many use a heap, more use partial selection
int64_t SelectBest(absl::Span<const float> logits, absl::Span<const TokenId> banned, int64_t count,
                   TokenId* best);

// weights[i] = exp((logits[i] - max) * per_temperature), for logits of at most `max`; those below
// `least` are 0.
void ComputeWeights(const float* logits, int64_t count, double max, double per_temperature,
                    double least, double* weights);

// weights[i] = 0 where it is below `least`.
void DropBelow(double least, int64_t count, double* weights);

// sums[c] of kChunkIds weights each, of the last chunk of what is left, in ascending order.
void SumChunks(const double* weights, int64_t count, double* sums);

// The softmax of a row.
class RowLogprobs {
 public:
  // `logits` without NaN and +inf, at least one finite; they outlive this.
  explicit RowLogprobs(absl::Span<const float> logits);

  float Of(TokenId id) const {
    return static_cast<float>((static_cast<double>(logits_[id]) - max_) - log_sum_);
  }
  // 1: the most likely id.
  int RankOf(TokenId id) const;

 private:
  absl::Span<const float> logits_;
  double max_;
  double log_sum_;
};

}  // namespace bulkhead
