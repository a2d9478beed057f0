// Sampler: samples one token from one row of logits, on rank 0's host.
//
// Penalties, biases and bans change the logits first (logits_processor.h). Then they are divided by
// the temperature; then min-p drops tokens less likely than min_p times the most likely one, top-k
// keeps the k most likely, and top-p keeps the shortest prefix of the remaining ones, by
// probability, whose share reaches p (the same filter order as vLLM). Ties go to the lowest id
// everywhere, so top-k keeps exactly k. Bit-identical on every x86-64: exp and log are our own
// (base/token_sampling.h, base/portable_math.h), sums use fixed chunks of 1024 ids, and the
// randomness depends on (seed, sample index 0, absolute position) only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// INTERNAL: a logit of the row is NaN or +inf; or every token is banned, which is INVALID_ARGUMENT
// where the request changes logits.
absl::Status NotFiniteError(const SampleRow& row);
absl::Status NothingToSampleError(const SampleRow& row);

class Sampler {
 public:
  // Host memory for a sampler; its owner takes it from the ledger.
  static int64_t ScratchBytes(int64_t vocab_size);
  // `scratch`: ScratchBytes(vocab_size) bytes, 8-byte aligned, outlives the sampler.
  Sampler(int64_t vocab_size, std::byte* scratch);

  // Samples the token of `row` from `raw` logits [V]. Log probabilities and rank are those of the
  // raw logits, before penalties, bans, temperature and filters; the top n are listed most likely
  // first. Errors as above; -inf excludes a token.
  absl::StatusOr<GeneratedToken> Sample(absl::Span<const float> raw, const SampleRow& row);

 private:
  void Weigh(absl::Span<const float> logits, const SampleRow& row, float max);
  void KeepTopP(absl::Span<const float> logits, double top_p);
  double SumOfWeights() const;
  TokenId SampleToken(double uniform) const;
  void AddLogprobs(absl::Span<const float> logits, int num_best, GeneratedToken& token);
  absl::StatusOr<absl::Span<const float>> Processed(absl::Span<const float> raw,
                                                    const SampleRow& row);

  int64_t vocab_size_;
  int64_t num_chunks_;
  double* weights_;      // [V] exp((logit - max) / temperature) of a candidate, (0, 1]; else 0
  double* chunk_sums_;   // [num_chunks_] of weights_
  double* bucket_sums_;  // [kNumBuckets]
  TokenId* best_;        // [V], most likely first
  float* processed_;     // [V]
};

}  // namespace bulkhead
