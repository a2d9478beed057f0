#include "runtime/engine/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
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
  return vocab_size * static_cast<int64_t>(sizeof(double) + 2 * sizeof(TokenId) + sizeof(float)) +
         kNumBuckets * static_cast<int64_t>(sizeof(double));
}

Sampler::Sampler(int64_t vocab_size, std::byte* scratch) : vocab_size_(vocab_size) {
  BH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<TokenId>::max());
  weights_ = reinterpret_cast<double*>(scratch);
  bucket_sums_ = weights_ + vocab_size;
  ids_ = reinterpret_cast<TokenId*>(bucket_sums_ + kNumBuckets);
  best_ = ids_ + vocab_size;
  processed_ = reinterpret_cast<float*>(best_ + vocab_size);
}

absl::StatusOr<GeneratedToken> Sampler::Sample(absl::Span<const float> raw, const SampleRow& row) {
  BH_CHECK(static_cast<int64_t>(raw.size()) == vocab_size_);
  BH_CHECK(std::is_sorted(row.banned.begin(), row.banned.end()));
  if (!HasNoNanOrPositiveInf(raw)) return NotFiniteError(row);
  absl::Span<const float> logits = raw;
  if (row.logits != nullptr) {
    BH_ASSIGN_OR_RETURN(logits, Processed(raw, *row.logits));
  }
  GeneratedToken token;
  token.id = ArgMax(logits, row.banned);
  if (token.id < 0) return NothingToSampleError(row);
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0) {
    const float max = logits[token.id];
    if (sampling.top_k > 0 && sampling.top_k < vocab_size_) {
      ComputeBestWeights(logits, row, max);
    } else {
      ComputeAllWeights(logits, row, max);
    }
    Compact(sampling.min_p);
    if (sampling.top_p < 1) KeepTopP(logits, sampling.top_p);
    token.id = SampleToken(UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position)));
  }
  if (row.num_logprobs.has_value()) AddLogprobs(raw, *row.num_logprobs, token);
  return token;
}

absl::StatusOr<absl::Span<const float>> Sampler::Processed(absl::Span<const float> raw,
                                                           const LogitsProcessor& processor) {
  std::copy(raw.begin(), raw.end(), processed_);
  BH_RETURN_IF_ERROR(processor.Apply(absl::MakeSpan(processed_, raw.size())));
  return absl::MakeConstSpan(processed_, raw.size());
}

void Sampler::ComputeAllWeights(absl::Span<const float> logits, const SampleRow& row, float max) {
  ComputeWeights(logits.data(), vocab_size_, max, 1.0 / double{row.sampling.temperature}, weights_);
  std::iota(ids_, ids_ + vocab_size_, 0);
  for (const TokenId id : row.banned) {
    if (id >= 0 && id < vocab_size_) weights_[id] = 0;
  }
  num_candidates_ = vocab_size_;
}

void Sampler::ComputeBestWeights(absl::Span<const float> logits, const SampleRow& row, float max) {
  const double per_temperature = 1.0 / double{row.sampling.temperature};
  num_candidates_ = SelectBest(logits, row.banned, row.sampling.top_k, best_);
  std::copy(best_, best_ + num_candidates_, ids_);
  std::sort(ids_, ids_ + num_candidates_);
  for (int64_t i = 0; i < num_candidates_; ++i) {
    weights_[i] = WeightOf(logits[ids_[i]], max, per_temperature);
  }
}

// Drops candidates with a weight of 0 or below `least_weight`. The most likely one has weight 1 and
// stays.
void Sampler::Compact(double least_weight) {
  const double least = std::max(least_weight, kNoWeight);
  int64_t kept = 0;
  for (int64_t i = 0; i < num_candidates_; ++i) {
    weights_[kept] = weights_[i];
    ids_[kept] = ids_[i];
    kept += static_cast<int64_t>(weights_[i] >= least);
  }
  num_candidates_ = kept;
}

void Sampler::KeepTopP(absl::Span<const float> logits, double top_p) {
  const double target = top_p * SumOfWeights();
  std::fill(bucket_sums_, bucket_sums_ + kNumBuckets, 0.0);
  for (int64_t i = 0; i < num_candidates_; ++i) bucket_sums_[BucketOf(weights_[i])] += weights_[i];
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + bucket_sums_[bucket] < target)
    mass += bucket_sums_[bucket++];
  if (bucket == kNumBuckets) return;  // rounding: every candidate is needed
  // The cutoff lies inside this bucket: walk through it, most likely first. best_ holds candidate
  // indices, not ids, to look up the weights; indices ascend with ids.
  int64_t members = 0;
  for (int64_t i = 0; i < num_candidates_; ++i) {
    if (BucketOf(weights_[i]) == bucket) best_[members++] = static_cast<TokenId>(i);
  }
  std::sort(best_, best_ + members,
            [&](TokenId a, TokenId b) { return MoreLikely{logits.data()}(ids_[a], ids_[b]); });
  int64_t needed = 0;
  double in_bucket = 0;
  while (needed < members && mass + in_bucket < target) in_bucket += weights_[best_[needed++]];
  KeepFrom(logits, bucket, needed);
}

// Keeps the candidates of more likely buckets, and the first `num_kept_of_bucket` of best_ from
// this one.
void Sampler::KeepFrom(absl::Span<const float> logits, int bucket, int64_t num_kept_of_bucket) {
  const MoreLikely better{logits.data()};
  const TokenId last = num_kept_of_bucket > 0 ? ids_[best_[num_kept_of_bucket - 1]] : -1;
  int64_t kept = 0;
  for (int64_t i = 0; i < num_candidates_; ++i) {
    const int own = BucketOf(weights_[i]);
    const bool in_run = own < bucket || (own == bucket && last >= 0 && !better(last, ids_[i]));
    weights_[kept] = weights_[i];
    ids_[kept] = ids_[i];
    kept += static_cast<int64_t>(in_run);
  }
  num_candidates_ = kept;
}

double Sampler::SumOfWeights() const {
  double sum = 0;
  double chunk_sum = 0;
  int64_t chunk = 0;
  for (int64_t i = 0; i < num_candidates_; ++i) {
    if (ids_[i] / kChunkIds != chunk) {
      sum += chunk_sum;
      chunk_sum = 0;
      chunk = ids_[i] / kChunkIds;
    }
    chunk_sum += weights_[i];
  }
  return sum + chunk_sum;
}

// The first candidate, by id, at which the running sum of SumOfWeights exceeds its share.
TokenId Sampler::SampleToken(double uniform) const {
  const double target = uniform * SumOfWeights();
  double sum = 0;
  double chunk_sum = 0;
  int64_t chunk = 0;
  for (int64_t i = 0; i < num_candidates_; ++i) {
    if (ids_[i] / kChunkIds != chunk) {
      sum += chunk_sum;
      chunk_sum = 0;
      chunk = ids_[i] / kChunkIds;
    }
    chunk_sum += weights_[i];
    if (sum + chunk_sum > target) return ids_[i];
  }
  return ids_[num_candidates_ - 1];  // the product was rounded up to the sum
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
