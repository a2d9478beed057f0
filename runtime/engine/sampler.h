// Sampler: samples one token from one row of logits, on a host's threads.
//
// Penalties, biases and bans change the logits first (logits_processor.h). Then they are divided by
// the temperature; then min-p drops tokens less likely than min_p times the most likely one, top-k
// keeps the k most likely, and top-p keeps the shortest prefix of the remaining ones, by
// probability, whose share reaches p (the same filter order as vLLM). Ties go to the lowest id
// everywhere, so top-k keeps exactly k. Bit-identical on every x86-64: exp and log are our own
// (base/token_sampling.h, base/portable_math.h), sums are over fixed chunks of 1024 ids
// (weighted_tokens.h), and the randomness depends on (seed, sample index 0, absolute position)
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/ledger.h"
#include "runtime/engine/logits_row.h"
#include "runtime/engine/request.h"
#include "runtime/engine/row_weights.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// INTERNAL: a logit of the row is NaN or +inf; or every token is banned (INVALID_ARGUMENT if the
// request changes logits).
absl::Status NotFiniteError(const SampleRow& row);
absl::Status NothingToSampleError(const SampleRow& row);

class Sampler {
 public:
  // Bytes of host memory for a sampler; its owner takes them from the ledger.
  static int64_t ScratchBytes(int64_t vocab_size);
  // `scratch`: ScratchBytes(vocab_size) bytes, 8-byte aligned, outlives the sampler.
  Sampler(int64_t vocab_size, std::byte* scratch) : Sampler(vocab_size, BumpAllocator(scratch)) {}

  // Samples the token of `row` from `logits` [V], which are modified in place as the row asks. Log
  // probabilities and rank are of the logits as given, before penalties, bans, temperature and
  // filters; the top n are listed most likely first. Errors as above; -inf excludes a token. Same
  // bits with any number of threads.
  absl::StatusOr<GeneratedToken> Sample(absl::Span<float> logits, const SampleRow& row,
                                        const RowThreads& threads = OneThread());

  const RowWeights& weights() const { return weights_; }
  RowWeights& weights() { return weights_; }

 private:
  Sampler(int64_t vocab_size, BumpAllocator&& allocator);
  bool FindMaxima(absl::Span<const float> logits, const RowThreads& threads);
  absl::Span<const float> maxima() const {
    return {maxima_, static_cast<size_t>(num_chunks_ * kGroups)};
  }
  absl::Status Change(absl::Span<float> logits, const SampleRow& row, const RowThreads& threads);
  TokenId SampleWeighted(absl::Span<const float> logits, const SampleRow& row, float max,
                         const RowThreads& threads);
  TokenId SampleListed(const float* logits, int64_t count, const SampleRow& row,
                       const Weighing& weighing, double uniform);
  void AddTop(RowLogprobs& logprobs, absl::Span<const float> logits, int num_best,
              GeneratedToken& token);

  int64_t vocab_size_;
  int64_t num_chunks_;
  RowWeights weights_;
  float* maxima_;  // [num_chunks_, kGroups]
  TokenId* list_;  // [min(V, kHeapMax)]
  float* raw_;     // [V] logits as given, if needed after a change
  int64_t scratch_bytes_;
};

}  // namespace bulkhead
