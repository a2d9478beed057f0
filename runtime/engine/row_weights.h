// RowWeights: the weights of a whole row's tokens, exp((logit - max) / temperature), and the token
// that is sampled from them.
//
// The sampled token is defined by exact weights and their sums in the order of ids
// (weighted_tokens.h). These are slow, so less precise weights, and their sums in any order, are
// computed first, by several threads. If every comparison is further from its threshold than their
// maximum error, they give the same token. Otherwise, once in some thousands of rows, the exact
// weights and sums in order are computed: the token is the same in either case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/token_sampling.h"
#include "memory/ledger.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// The threads that may share the work on a row.
struct RowThreads {
  int count = 1;
  // Runs body(part) for each of `parts` parts and returns when all are done. Not called for one
  // part.
  absl::FunctionRef<void(int parts, absl::FunctionRef<void(int part)> body)> run;
};
inline void RunInTurn(int parts, absl::FunctionRef<void(int part)> body) {
  for (int part = 0; part < parts; ++part) body(part);
}
inline RowThreads OneThread() { return {1, RunInTurn}; }

// Which tokens of a row have a weight, and how it is computed.
struct Weighing {
  float max = 0;  // the largest logit
  double per_temperature = 1;
  double least = kNoWeight;  // smaller weights are 0
  // top-k keeps ids with a larger logit, and ids below `equal_end` whose logit equals it.
  float least_logit = std::numeric_limits<float>::lowest();
  int64_t equal_end = std::numeric_limits<int64_t>::max();
};

class RowWeights {
 public:
  // Takes its memory from `allocator`.
  RowWeights(int64_t vocab_size, BumpAllocator& allocator);

  // The token of `logits` [V], whose maxima are `maxima` (FindMaxima), for `uniform` in [0, 1);
  // top_p in (0, 1].
  TokenId Sample(absl::Span<const float> logits, absl::Span<const float> maxima,
                 const Weighing& weighing, double top_p, double uniform, const RowThreads& threads);

  // Scratch for others: [V], [V] and [kNumBuckets].
  double* weights() const { return weights_; }
  int32_t* ids() const { return ids_; }
  double* bucket_sums() const { return bucket_sums_; }

  // For tests: number of rows so far that needed the sums in order.
  int64_t decided_in_order() const { return decided_in_order_; }
  // For tests: multiplies the assumed maximum difference of sums.
  void set_slack_factor(double factor) { slack_factor_ = factor; }

 private:
  static constexpr int kMaxParts = 8;
  static constexpr int kBucketCopies = 8;
  struct Row {
    absl::Span<const float> logits;
    absl::Span<const float> maxima;
    const Weighing& weighing;
    int parts;
    const RowThreads& threads;
  };

  int64_t IdsOf(int64_t chunk) const {
    return std::min<int64_t>(kChunkIds, vocab_size_ - chunk * kChunkIds);
  }
  void ForChunks(const Row& row,
                 absl::FunctionRef<void(int part, int64_t begin, int64_t end)> body) const;
  void Weigh(const Row& row, bool sums_buckets);
  void WeighChunk(const Row& row, int64_t chunk, bool quickly) const;
  void AddToBuckets(const Row& row, int part, int64_t chunk) const;
  bool KeepTopP(const Row& row, double top_p);
  int64_t SplitAt(const Row& row, int bucket);
  bool CutMembers(const Row& row, int64_t count, int bucket, double mass, double target);
  std::optional<TokenId> TokenAt(double uniform) const;
  TokenId SampleInOrder(const Row& row, double top_p, double uniform) const;

  int64_t vocab_size_;
  int64_t num_chunks_;
  double* weights_;      // [V] quick ones
  double* sums_;         // [num_chunks_] sums of kept weights, in any order
  double* bucket_sums_;  // [kBucketCopies, kNumBuckets]
  int32_t* ids_;         // [V]
  double total_ = 0;     // sum of all weights
  double slack_ = 0;     // maximum difference of two sums of the row
  double least_ = 0;     // smaller weights_ are not kept
  double slack_factor_ = 1;
  int64_t decided_in_order_ = 0;
};

}  // namespace bulkhead
