#include "runtime/engine/sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/portable_math.h"
#include "base/status.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/refusal.h"
#include "runtime/engine/top_k.h"
#include "runtime/engine/weighted_tokens.h"

namespace bulkhead {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// The least logit that may have a weight of min_p; may be slightly lower.
float LeastLogit(const SamplingParams& sampling, float max) {
  const double nats = LogOfAtLeastOne(1 / double{sampling.min_p}) + 1e-6;
  const double least = max - nats * double{sampling.temperature} * (1 + 1e-6);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  return least > double{kLowest} ? std::nextafter(static_cast<float>(least), kLowest) : kLowest;
}

}  // namespace

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
  return Sampler(vocab_size, nullptr).scratch_bytes_;
}

Sampler::Sampler(int64_t vocab_size, BumpAllocator&& allocator)
    : vocab_size_(vocab_size), num_chunks_(NumChunks(vocab_size)), weights_(vocab_size, allocator) {
  BH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<TokenId>::max());
  const auto next = [&](int64_t count) { return allocator.Next(count * int64_t{4}); };
  maxima_ = reinterpret_cast<float*>(next(num_chunks_ * kGroups));
  list_ = reinterpret_cast<TokenId*>(next(std::min(vocab_size, kHeapMax)));
  raw_ = reinterpret_cast<float*>(next(vocab_size));
  scratch_bytes_ = allocator.used_bytes();
}

absl::StatusOr<GeneratedToken> Sampler::Sample(absl::Span<float> logits, const SampleRow& row,
                                               const RowThreads& threads) {
  BH_CHECK(std::ssize(logits) == vocab_size_);
  BH_CHECK(std::is_sorted(row.banned.begin(), row.banned.end()));
  if (!FindMaxima(logits, threads)) return NotFiniteError(row);
  float max = MaxOf(maxima());
  const bool changes = row.logits != nullptr || !row.banned.empty();
  absl::Span<const float> raw = logits;
  GeneratedToken token;
  std::optional<RowLogprobs> logprobs;
  if (row.num_logprobs.has_value() && max > kExcluded) {
    if (changes) {
      std::copy(logits.begin(), logits.end(), raw_);
      raw = absl::MakeConstSpan(raw_, logits.size());
    }
    logprobs.emplace(raw, max);
    AddTop(*logprobs, raw, *row.num_logprobs, token);
  }
  if (changes) {
    BH_RETURN_IF_ERROR(Change(logits, row, threads));
    max = MaxOf(maxima());
  }
  if (!(max > kExcluded)) return NothingToSampleError(row);
  token.id = row.sampling.temperature > 0 ? SampleWeighted(logits, row, max, threads)
                                          : MostLikely(logits, maxima());
  if (logprobs.has_value()) {
    token.logprob = logprobs->Of(token.id);
    token.rank = logprobs->RankOf(token.id);
  }
  return token;
}

// False: NaN or +inf.
bool Sampler::FindMaxima(absl::Span<const float> logits, const RowThreads& threads) {
  if (threads.count == 1) return bulkhead::FindMaxima(logits, 0, num_chunks_, maxima_);
  std::atomic<bool> ok = true;
  const int parts = threads.count;
  threads.run(parts, [&](int part) {
    if (!bulkhead::FindMaxima(logits, num_chunks_ * part / parts, num_chunks_ * (part + 1) / parts,
                              maxima_)) {
      ok.store(false, std::memory_order_relaxed);
    }
  });
  return ok.load(std::memory_order_relaxed);
}

// Applies the request's changes and bans to the logits, and updates the maxima.
absl::Status Sampler::Change(absl::Span<float> logits, const SampleRow& row,
                             const RowThreads& threads) {
  if (row.logits != nullptr) BH_RETURN_IF_ERROR(row.logits->Apply(logits, row.drafted));
  for (const TokenId id : row.banned) {
    if (id >= 0 && id < vocab_size_) logits[id] = kExcluded;
  }
  if (row.logits != nullptr) {
    return FindMaxima(logits, threads) ? absl::OkStatus() : NotFiniteError(row);
  }
  for (const TokenId id : row.banned) {
    if (id < 0 || id >= vocab_size_) continue;
    const int64_t chunk = id / kChunkIds;
    bulkhead::FindMaxima(logits, chunk, chunk + 1, maxima_);
  }
  return absl::OkStatus();
}

TokenId Sampler::SampleWeighted(absl::Span<const float> logits, const SampleRow& row, float max,
                                const RowThreads& threads) {
  const SamplingParams& sampling = row.sampling;
  const double uniform = UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position));
  Weighing weighing;
  weighing.max = max;
  weighing.per_temperature = 1.0 / double{sampling.temperature};
  weighing.least = std::max(double{sampling.min_p}, kNoWeight);
  if (sampling.top_k >= 1 && sampling.top_k < vocab_size_) {
    if (sampling.top_k <= kHeapMax) {
      const int64_t count = SelectTopK(logits, maxima(), sampling.top_k, list_, weights_.ids());
      return SampleListed(logits.data(), count, row, weighing, uniform);
    }
    const LogitCut cut = CutBehindTopK(logits, sampling.top_k, weights_.weights());
    weighing.least_logit = cut.least;
    weighing.equal_end = cut.equal_end;
  } else if (sampling.min_p > 0) {
    // For when few reach it. Rather too many: their weights decide.
    const float least = LeastLogit(sampling, max);
    const int64_t room = std::min(vocab_size_, kHeapMax);
    int64_t count = 0;
    for (int64_t chunk = 0; chunk < num_chunks_ && count <= room; ++chunk) {
      count +=
          CollectBetween(logits, maxima_, chunk, chunk + 1, least, max, weights_.ids() + count);
    }
    if (count <= room) {
      std::copy_n(weights_.ids(), count, list_);
      return SampleListed(logits.data(), count, row, weighing, uniform);
    }
  }
  return weights_.Sample(logits, maxima(), weighing, double{sampling.top_p}, uniform, threads);
}

TokenId Sampler::SampleListed(const float* logits, int64_t count, const SampleRow& row,
                              const Weighing& weighing, double uniform) {
  std::sort(list_, list_ + count);
  const WeightedTokens tokens{list_, weights_.weights(), count};
  for (int64_t i = 0; i < count; ++i) {
    const double weight = WeightOf(logits[list_[i]], weighing.max, weighing.per_temperature);
    tokens.weights[i] = weight >= weighing.least ? weight : 0;
  }
  if (row.sampling.top_p < 1) {
    KeepTopP(tokens, logits, double{row.sampling.top_p}, weights_.bucket_sums(), weights_.ids());
  }
  return SampleInOrder(tokens, uniform);
}

void Sampler::AddTop(RowLogprobs& logprobs, absl::Span<const float> logits, int num_best,
                     GeneratedToken& token) {
  const int64_t wanted = std::min<int64_t>(num_best, vocab_size_);
  BH_CHECK(wanted <= kHeapMax);
  if (wanted <= 0) return;
  int64_t count = SelectTopK(logits, maxima(), wanted, list_, weights_.ids());
  std::sort(list_, list_ + count, MoreLikely{logits.data()});
  if (count < wanted) count = SelectBest(logits, wanted, list_);  // some are -inf
  token.top.reserve(count);
  for (int64_t i = 0; i < count; ++i) token.top.push_back({list_[i], logprobs.Of(list_[i])});
}

}  // namespace bulkhead
