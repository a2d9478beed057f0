// Sampler: draws one token from one row of logits, on rank 0's host.
//
// The logits are divided by the temperature; then min-p drops what is less likely than min_p times
// the likeliest, top-k keeps the k likeliest, and top-p keeps the shortest run of the likeliest
// whose share of what is left reaches p. Ties go to the lowest id everywhere, so top-k keeps
// exactly k. The same bits on every x86-64: exp and log are our own in double, sums run over fixed
// chunks of 1024 ids, and the randomness is Philox4x32-10 of (seed, sample index 0, absolute
// position).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

class Sampler {
 public:
  // Host memory that a sampler works in; taken from the ledger by its owner.
  static int64_t ScratchBytes(int64_t vocab_size);
  // `scratch`: ScratchBytes(vocab_size) bytes, 8-byte aligned, outlives the sampler.
  Sampler(int64_t vocab_size, std::byte* scratch);

  // Draws the token of `row` from `logits` [V]. Log probabilities are those of the raw logits,
  // before temperature and filters; the n best are listed likeliest first. INTERNAL when a logit is
  // NaN or +inf, or when nothing is left to draw (-inf is a token that cannot be drawn).
  absl::StatusOr<GeneratedToken> Sample(absl::Span<const float> logits, const SampleRow& row);

 private:
  struct Scan {
    float max = 0;
    TokenId argmax = -1;  // among ids that may be drawn; -1: none
  };

  absl::StatusOr<Scan> ScanLogits(absl::Span<const float> logits, const SampleRow& row) const;
  // Fills the candidates: ids ascending, weights exp((logit - max) / temperature), of those above
  // 0.
  void Weigh(absl::Span<const float> logits, const SampleRow& row, const Scan& scan);
  void WeighBest(absl::Span<const float> logits, const SampleRow& row, const Scan& scan, int64_t k);
  void DropBelow(double least_weight);
  void KeepTopP(double top_p, absl::Span<const float> logits);
  double SumOfWeights() const;
  TokenId Draw(double uniform) const;
  void AddLogprobs(absl::Span<const float> logits, int n, GeneratedToken& token);
  // The `k` best ids into best_, likeliest first.
  void SelectBest(absl::Span<const float> logits, absl::Span<const TokenId> banned, int64_t k);

  int64_t vocab_size_;
  double* weights_;      // [V]
  double* bucket_sums_;  // [kNumBuckets]
  TokenId* ids_;         // [V] of the candidates
  TokenId* best_;        // [V]
  int64_t num_candidates_ = 0;
  int64_t num_best_ = 0;
};

}  // namespace bulkhead
