#include "runtime/engine/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/portable_math.h"
#include "base/status.h"
#include "base/token_sampling.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/logits_row.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {

absl::Status NotFiniteError(const SampleRow& row) {
  return absl::InternalError(
      absl::StrCat("the model's logits for position ", row.position, " are not finite numbers"));
}

absl::Status NothingToSampleError(const SampleRow& row) {
  const std::string which = absl::StrCat("no token can be sampled for position ", row.position);
  if (row.logits == nullptr) return absl::InternalError(absl::StrCat(which, ": all are banned"));
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(which,
                                              ": allowed_token_ids, bad_words, min_tokens and "
                                              "structured output leave none; allow more ids")),
      reason::kInvalidValue, {{"position", absl::StrCat(row.position)}});
}

int64_t Sampler::ScratchBytes(int64_t vocab_size) {
  return (vocab_size + CeilDiv(vocab_size, kChunkIds) + kNumBuckets) *
             static_cast<int64_t>(sizeof(double)) +
         vocab_size * static_cast<int64_t>(sizeof(TokenId) + sizeof(float));
}

Sampler::Sampler(int64_t vocab_size, std::byte* scratch)
    : vocab_size_(vocab_size), num_chunks_(CeilDiv(vocab_size, kChunkIds)) {
  BH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<TokenId>::max());
  weights_ = reinterpret_cast<double*>(scratch);
  chunk_sums_ = weights_ + vocab_size;
  bucket_sums_ = chunk_sums_ + num_chunks_;
  best_ = reinterpret_cast<TokenId*>(bucket_sums_ + kNumBuckets);
  processed_ = reinterpret_cast<float*>(best_ + vocab_size);
}

absl::StatusOr<GeneratedToken> Sampler::Sample(absl::Span<const float> raw, const SampleRow& row) {
  BH_CHECK(static_cast<int64_t>(raw.size()) == vocab_size_);
  BH_CHECK(std::is_sorted(row.banned.begin(), row.banned.end()));
  if (!HasNoNanOrPositiveInf(raw)) return NotFiniteError(row);
  absl::Span<const float> logits = raw;
  if (row.logits != nullptr) {
    BH_ASSIGN_OR_RETURN(logits, Processed(raw, row));
  }
  GeneratedToken token;
  token.id = ArgMax(logits, row.banned);
  if (token.id < 0) return NothingToSampleError(row);
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0) {
    Weigh(logits, row, logits[token.id]);
    if (sampling.top_p < 1) KeepTopP(logits, sampling.top_p);
    token.id = SampleToken(UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position)));
  }
  if (row.num_logprobs.has_value()) AddLogprobs(raw, *row.num_logprobs, token);
  return token;
}

absl::StatusOr<absl::Span<const float>> Sampler::Processed(absl::Span<const float> raw,
                                                           const SampleRow& row) {
  std::copy(raw.begin(), raw.end(), processed_);
  BH_RETURN_IF_ERROR(row.logits->Apply(absl::MakeSpan(processed_, raw.size()), row.drafted));
  return absl::MakeConstSpan(processed_, raw.size());
}

void Sampler::Weigh(absl::Span<const float> logits, const SampleRow& row, float max) {
  const SamplingParams& sampling = row.sampling;
  const double per_temperature = 1.0 / double{sampling.temperature};
  const double least = std::max(double{sampling.min_p}, kNoWeight);
  if (sampling.top_k < 1 || sampling.top_k >= vocab_size_) {
    ComputeWeights(logits.data(), vocab_size_, max, per_temperature, least, weights_);
    for (const TokenId id : row.banned) {
      if (id >= 0 && id < vocab_size_) weights_[id] = 0;
    }
  } else {
    std::fill(weights_, weights_ + vocab_size_, 0.0);
    const int64_t count = SelectBest(logits, row.banned, sampling.top_k, best_);
    for (const TokenId id : absl::MakeConstSpan(best_, count)) {
      const double weight = WeightOf(logits[id], max, per_temperature);
      if (weight >= least) weights_[id] = weight;
    }
  }
  SumChunks(weights_, vocab_size_, chunk_sums_);
}

void Sampler::KeepTopP(absl::Span<const float> logits, double top_p) {
  const double target = top_p * SumOfWeights();
  // Into best_ without branches, which could not be predicted.
  int64_t candidates = 0;
  for (int64_t i = 0; i < vocab_size_; ++i) {
    best_[candidates] = static_cast<TokenId>(i);
    candidates += static_cast<int64_t>(weights_[i] > 0);
  }
  std::fill(bucket_sums_, bucket_sums_ + kNumBuckets, 0.0);
  for (int64_t i = 0; i < candidates; ++i) {
    const double weight = weights_[best_[i]];
    bucket_sums_[BucketOf(weight)] += weight;
  }
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + bucket_sums_[bucket] < target)
    mass += bucket_sums_[bucket++];
  if (bucket == kNumBuckets) return;  // rounding: every candidate is needed
  // The cutoff lies inside this bucket: walk through it, most likely first.
  int64_t members = 0;
  for (int64_t i = 0; i < candidates; ++i) {
    const TokenId id = best_[i];
    best_[members] = id;
    members += static_cast<int64_t>(BucketOf(weights_[id]) == bucket);
  }
  std::sort(best_, best_ + members, MoreLikely{logits.data()});
  int64_t needed = 0;
  double in_bucket = 0;
  while (needed < members && mass + in_bucket < target) in_bucket += weights_[best_[needed++]];
  for (int64_t i = needed; i < members; ++i) weights_[best_[i]] = 0;
  DropBelow(LeastOfBucket(bucket), vocab_size_, weights_);
  SumChunks(weights_, vocab_size_, chunk_sums_);
}

double Sampler::SumOfWeights() const {
  return std::accumulate(chunk_sums_, chunk_sums_ + num_chunks_, 0.0);
}

// The first candidate, by id, at which the running sum of SumOfWeights exceeds its share.
TokenId Sampler::SampleToken(double uniform) const {
  const double target = uniform * SumOfWeights();
  double sum = 0;
  int64_t chunk = 0;  // sums within a chunk never fall: its last one says whether it is the one
  while (chunk < num_chunks_ && sum + chunk_sums_[chunk] <= target) sum += chunk_sums_[chunk++];
  double chunk_sum = 0;
  for (int64_t i = chunk * kChunkIds; i < vocab_size_; ++i) {
    chunk_sum += weights_[i];
    if (sum + chunk_sum > target) return static_cast<TokenId>(i);
  }
  int64_t last = vocab_size_ - 1;  // the product was rounded up to the sum
  while (weights_[last] == 0) --last;
  return static_cast<TokenId>(last);
}

void Sampler::AddLogprobs(absl::Span<const float> logits, int num_best, GeneratedToken& token) {
  const RowLogprobs row(logits);
  token.logprob = row.Of(token.id);
  token.rank = row.RankOf(token.id);
  const int64_t count = SelectBest(logits, {}, num_best, best_);
  token.top.reserve(count);
  for (int64_t i = 0; i < count; ++i) token.top.push_back({best_[i], row.Of(best_[i])});
}

}  // namespace bulkhead
