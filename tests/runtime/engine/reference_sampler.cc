#include "tests/runtime/engine/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/portable_math.h"
#include "base/token_sampling.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The ids, the most likely first, ties by id.
std::vector<TokenId> InOrderOfLogits(const std::vector<float>& logits) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  return order;
}

double SumInChunks(const std::vector<double>& weights) {
  double sum = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kChunkIds) {
    const size_t end = std::min(begin + kChunkIds, weights.size());
    double of_chunk = 0;
    for (size_t i = begin; i < end; ++i) of_chunk += weights[i];
    sum += of_chunk;
  }
  return sum;
}

void CutTopP(const std::vector<TokenId>& order, double top_p, std::vector<double>& weights) {
  const double target = top_p * SumInChunks(weights);
  std::vector<double> buckets(kNumBuckets, 0.0);
  for (const double weight : weights) buckets[BucketOf(weight)] += weight;
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + buckets[bucket] < target) mass += buckets[bucket++];
  if (bucket == kNumBuckets) return;
  double in_bucket = 0;
  for (const TokenId id : order) {
    const int own = BucketOf(weights[id]);
    if (own < bucket || weights[id] == 0) continue;
    if (own > bucket || mass + in_bucket >= target) {
      weights[id] = 0;
    } else {
      in_bucket += weights[id];
    }
  }
}

TokenId Pick(const std::vector<double>& weights, double uniform) {
  const double target = uniform * SumInChunks(weights);
  double before = 0;
  double of_chunk = 0;
  TokenId last = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i % kChunkIds == 0) {
      before += of_chunk;
      of_chunk = 0;
    }
    of_chunk += weights[i];
    if (weights[i] > 0) last = static_cast<TokenId>(i);
    if (before + of_chunk > target) return last;
  }
  return last;
}

void AddReferenceLogprobs(const std::vector<float>& raw, int top, GeneratedToken& token) {
  const std::vector<TokenId> order = InOrderOfLogits(raw);
  const double max = raw[order[0]];
  std::vector<double> weights;
  for (const float logit : raw) weights.push_back(ExpOfNonPositive(logit - max));
  const double log_sum = LogOfAtLeastOne(SumInChunks(weights));
  const auto logprob = [&](TokenId id) { return static_cast<float>((raw[id] - max) - log_sum); };
  token.logprob = logprob(token.id);
  token.rank =
      static_cast<int>(std::find(order.begin(), order.end(), token.id) - order.begin()) + 1;
  for (int i = 0; i < top && i < static_cast<int>(order.size()); ++i)
    token.top.push_back({order[i], logprob(order[i])});
}

}  // namespace

absl::StatusOr<GeneratedToken> ReferenceSample(std::vector<float> logits, const SampleRow& row) {
  const std::vector<float> raw = logits;
  for (const float logit : raw) {
    if (std::isnan(logit) || logit == kInfinity) return NotFiniteError(row);
  }
  if (row.logits != nullptr) {
    const absl::Status status = row.logits->Apply(absl::MakeSpan(logits), row.drafted);
    if (!status.ok()) return status;
  }
  for (const TokenId id : row.banned) {
    if (id >= 0 && id < static_cast<TokenId>(logits.size())) logits[id] = -kInfinity;
  }
  const std::vector<TokenId> order = InOrderOfLogits(logits);
  const float max = logits[order[0]];
  if (max == -kInfinity) return NothingToSampleError(row);
  GeneratedToken token;
  token.id = order[0];
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0) {
    const double per_temperature = 1.0 / double{sampling.temperature};
    const size_t kept =
        sampling.top_k > 0 ? std::min<size_t>(sampling.top_k, order.size()) : order.size();
    std::vector<double> weights(logits.size(), 0.0);
    for (size_t i = 0; i < kept; ++i) {
      const double weight = WeightOf(logits[order[i]], max, per_temperature);
      if (weight >= std::max(double{sampling.min_p}, kNoWeight)) weights[order[i]] = weight;
    }
    if (sampling.top_p < 1) CutTopP(order, double{sampling.top_p}, weights);
    token.id = Pick(weights, UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position)));
  }
  if (row.num_logprobs.has_value()) AddReferenceLogprobs(raw, *row.num_logprobs, token);
  return token;
}

bool SameSample(const absl::StatusOr<GeneratedToken>& a, const absl::StatusOr<GeneratedToken>& b) {
  if (!a.ok() || !b.ok()) return a.status() == b.status();
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.id == y.id && std::memcmp(&x.logprob, &y.logprob, sizeof(float)) == 0;
  };
  return a->id == b->id && a->logprob == b->logprob && a->rank == b->rank &&
         std::equal(a->top.begin(), a->top.end(), b->top.begin(), b->top.end(), same);
}

std::vector<float> HardRow(uint64_t seed, int64_t vocab_size) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](uint64_t n) { return random() % n == 0; };
  const auto kind = static_cast<int>(random() % 10);
  const float deviation = std::exp(std::uniform_real_distribution<float>(-3, 4)(random));
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(vocab_size);
  for (float& logit : row) {
    logit = normal(random);
    if (kind == 1) logit = std::round(logit * 8) / 8;
    if (kind == 2) logit = std::round(logit);
    if (kind == 3) logit = 1.5F;
    if (kind == 4 && one_of(2)) logit = -kInfinity;
    if (kind == 5 && !one_of(500)) logit = -kInfinity;
    if (kind == 6) logit = one_of(2) ? 0.0F : -0.0F;
    if (kind == 7) logit = std::round(logit * 2) * 0.001F;
  }
  if (one_of(40)) row[random() % vocab_size] = one_of(2) ? std::nanf("") : kInfinity;
  if (one_of(40)) std::fill(row.begin(), row.end(), -kInfinity);
  return row;
}

SampleRow HardSettings(uint64_t seed, int64_t vocab_size) {
  std::mt19937_64 random(seed ^ 0x5DEECE66DULL);
  const auto any_of = [&](std::initializer_list<float> values) {
    return *(values.begin() + random() % values.size());
  };
  SampleRow row;
  row.sampling.temperature = any_of({0, 1, 1, 1, 0.7F, 0.1F, 1e-3F, 2, 100});
  row.sampling.top_p = any_of({1, 1, 0.95F, 0.5F, 0.1F, 0.999999F, 0.9999F, 0.25F, 1e-6F, 0.75F});
  row.sampling.min_p = any_of({0, 0, 0, 0.05F, 0.5F, 1, 1e-4F, 1e-30F});
  if (random() % 2 == 0) {
    row.sampling.top_k = static_cast<int>(random() % (random() % 2 == 0 ? 60 : vocab_size + 10));
  }
  row.sampling.seed = random();
  row.position = static_cast<int64_t>(random() % 100'000);
  if (random() % 3 == 0) {
    for (uint64_t left = random() % 5; left > 0; --left)
      row.banned.push_back(static_cast<TokenId>(random() % (vocab_size + 2)));
  }
  if (random() % 60 == 0) {
    row.banned.resize(vocab_size);
    std::iota(row.banned.begin(), row.banned.end(), 0);
  }
  std::sort(row.banned.begin(), row.banned.end());
  if (random() % 4 == 0) row.num_logprobs = static_cast<int>(random() % 8);
  return row;
}

}  // namespace bulkhead
