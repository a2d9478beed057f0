#include "runtime/engine/row_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/portable_math.h"
#include "runtime/engine/logits_row.h"
#include "runtime/engine/weighted_tokens.h"

// Error bound of sums, with u = 2^-53. A sum of n numbers >= 0 added in any order has a relative
// error of at most (n - 1) u (1 + tiny), and so have its partial sums. The values compared are such
// sums of at most V weights via kNumBuckets sums, or a share of one, which rounds once more; all
// are at most the sum S of all weights, which is at least 1, the weight of the largest logit. A
// quick weight has a relative error of at most 2^-36, and quick weights leave out less than V
// 2^-119. So a quantity and its quick counterpart are less than SumError(V + kNumBuckets + 2) S
// apart, and a comparison has two of them. The slack is twice that.
//
// top-p cuts tokens ordered by bucket of weights, and within a bucket by logit. If a token's quick
// weight is further than that from its bucket's borders, the same tokens come before it in the
// order by quick weights: a token whose quick weight is in another bucket than its weight is close
// to a border, and on the same side of it as its logit says.

namespace bulkhead {
namespace {

constexpr double kWeightError = 0x1p-35;
constexpr double kNegligible = 0x1p-119;

double SlackOf(int64_t vocab_size, double sum) {
  return 4 * SumError(vocab_size + kNumBuckets + 2) * sum;
}

// The logit of a weight, with an error far smaller than a bucket's width.
float LogitOf(double weight, const Weighing& weighing) {
  const double logit = weighing.max - LogOfAtLeastOne(1 / weight) / weighing.per_temperature;
  return static_cast<float>(std::max(logit, double{std::numeric_limits<float>::lowest()}));
}

}  // namespace

RowWeights::RowWeights(int64_t vocab_size, BumpAllocator& allocator)
    : vocab_size_(vocab_size), num_chunks_(NumChunks(vocab_size)) {
  const auto doubles = [&](int64_t count) {
    return reinterpret_cast<double*>(allocator.Next(count * static_cast<int64_t>(sizeof(double))));
  };
  weights_ = doubles(vocab_size_);
  sums_ = doubles(num_chunks_);
  bucket_sums_ = doubles(int64_t{kBucketCopies} * kNumBuckets);
  ids_ = reinterpret_cast<int32_t*>(
      allocator.Next(vocab_size_ * static_cast<int64_t>(sizeof(int32_t))));
}

TokenId RowWeights::Sample(absl::Span<const float> logits, absl::Span<const float> maxima,
                           const Weighing& weighing, double top_p, double uniform,
                           const RowThreads& threads) {
  const Row row{logits, maxima, weighing, std::min(threads.count, kMaxParts), threads};
  Weigh(row, top_p < 1);
  // The most likely token, whose weight is 1, may be all that top-p keeps.
  if (1 > top_p * total_ + slack_) return MostLikely(logits, maxima);
  std::optional<TokenId> token;
  if (top_p >= 1 || KeepTopP(row, top_p)) token = TokenAt(uniform);
  if (token.has_value()) return *token;
  ++decided_in_order_;
  return SampleInOrder(row, top_p, uniform);
}

void RowWeights::ForChunks(
    const Row& row, absl::FunctionRef<void(int part, int64_t begin, int64_t end)> body) const {
  if (row.parts == 1) return body(0, 0, num_chunks_);
  row.threads.run(row.parts, [&](int part) {
    body(part, num_chunks_ * part / row.parts, num_chunks_ * (part + 1) / row.parts);
  });
}

void RowWeights::Weigh(const Row& row, bool sums_buckets) {
  if (sums_buckets) std::fill_n(bucket_sums_, int64_t{kBucketCopies} * kNumBuckets, 0.0);
  const Weighing& weighing = row.weighing;
  ForChunks(row, [&](int part, int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const float max = MaxOf(row.maxima.subspan(chunk * kGroups, kGroups));
      const double most = WeightOf(max, weighing.max, weighing.per_temperature);
      if (max < weighing.least_logit || most < std::max(weighing.least / 2, kNegligible)) {
        std::fill_n(weights_ + chunk * kChunkIds, IdsOf(chunk), 0.0);
        sums_[chunk] = 0;
        continue;
      }
      WeighChunk(row, chunk, true);
      sums_[chunk] = SumInLanes(weights_ + chunk * kChunkIds, IdsOf(chunk));
      if (sums_buckets) AddToBuckets(row, part, chunk);
    }
  });
  total_ = std::accumulate(sums_, sums_ + num_chunks_, 0.0);
  slack_ = slack_factor_ * SlackOf(vocab_size_, total_);
  least_ = 0;
}

// If min-p compares weights, exact ones in order are used.
void RowWeights::WeighChunk(const Row& row, int64_t chunk, bool quickly) const {
  const Weighing& weighing = row.weighing;
  const int64_t first = chunk * kChunkIds;
  const int64_t end = first + IdsOf(chunk);
  const auto weigh = [&](int64_t from, int64_t to, float least_logit) {
    if (from >= to) return;
    const float* const logits = row.logits.data() + from;
    if (quickly && weighing.least <= kNoWeight &&
        ComputeWeightsQuickly(logits, to - from, weighing.max, weighing.per_temperature,
                              least_logit, weights_ + from)) {
      return;
    }
    ComputeWeights(logits, to - from, weighing.max, weighing.per_temperature, weighing.least,
                   least_logit, weights_ + from);
  };
  const int64_t equal_end = std::clamp(weighing.equal_end, first, end);
  weigh(first, equal_end, weighing.least_logit);
  weigh(equal_end, end,
        std::nextafter(weighing.least_logit, std::numeric_limits<float>::infinity()));
}

// Each part has several copies of its own, so that an addition does not wait for the previous one.
void RowWeights::AddToBuckets(const Row& row, int part, int64_t chunk) const {
  const int copies = std::min(kBucketCopies / row.parts, 4);
  std::array<double*, 4> sums;
  for (int i = 0; i < 4; ++i) {
    sums[i] = bucket_sums_ + int64_t{part * copies + i % copies} * kNumBuckets;
  }
  const double* const weights = weights_ + chunk * kChunkIds;
  const int64_t count = IdsOf(chunk);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int c = 0; c < 4; ++c) sums[c][BucketOf(weights[i + c])] += weights[i + c];
  }
  for (; i < count; ++i) sums[0][BucketOf(weights[i])] += weights[i];
}

// Drops the tokens that top-p drops. False: the sums are too close to a threshold.
bool RowWeights::KeepTopP(const Row& row, double top_p) {
  for (int copy = 1; copy < kBucketCopies; ++copy) {
    for (int i = 0; i < kNumBuckets; ++i) bucket_sums_[i] += bucket_sums_[copy * kNumBuckets + i];
  }
  const double target = top_p * total_;
  double mass = 0;
  int bucket = 0;
  while (bucket < kNumBuckets && mass + bucket_sums_[bucket] < target)
    mass += bucket_sums_[bucket++];
  return bucket < kNumBuckets && CutMembers(row, SplitAt(row, bucket), bucket, mass, target);
}

// Sums weights above the bucket, by chunk, and lists the ids in it, ascending; returns how many.
int64_t RowWeights::SplitAt(const Row& row, int bucket) {
  const double above = LeastOfBucket(bucket - 1);
  least_ = LeastOfBucket(bucket);
  // Rather too many ids: their weights decide.
  const float most_logit = LogitOf(std::min(1.0, above * 1.01), row.weighing);
  const float least_logit = LogitOf(std::max(least_ * 0.99, kNegligible / 2), row.weighing);
  std::array<int64_t, kMaxParts> sizes{};
  ForChunks(row, [&](int part, int64_t begin, int64_t end) {
    int32_t* const ids = ids_ + begin * kChunkIds;
    sizes[part] =
        CollectBetween(row.logits, row.maxima.data(), begin, end, least_logit, most_logit, ids);
    const auto elsewhere = [&](int32_t id) {
      return !(weights_[id] > 0) || BucketOf(weights_[id]) != bucket;
    };
    sizes[part] = std::remove_if(ids, ids + sizes[part], elsewhere) - ids;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      if (sums_[chunk] == 0) continue;
      sums_[chunk] = SumInLanesAtLeast(above, weights_ + chunk * kChunkIds, IdsOf(chunk));
    }
  });
  int64_t size = sizes[0];
  for (int part = 1; part < row.parts; ++part) {
    const int32_t* const ids = ids_ + num_chunks_ * part / row.parts * kChunkIds;
    std::copy(ids, ids + sizes[part], ids_ + size);
    size += sizes[part];
  }
  return size;
}

// Of the `count` ids_, all in the bucket, keeps the fewest most likely with which the sum, starting
// at `mass`, reaches `target`. False: too close to decide.
bool RowWeights::CutMembers(const Row& row, int64_t count, int bucket, double mass, double target) {
  // Uses bins of equal or adjacent logits, so that few must be sorted.
  constexpr int kBins = 256;
  const float* const logits = row.logits.data();
  std::array<double, kBins> bins{};
  float low = std::numeric_limits<float>::max();
  float high = std::numeric_limits<float>::lowest();
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, logits[ids_[i]]);
    high = std::max(high, logits[ids_[i]]);
  }
  const float per_logit = high > low ? std::min(kBins / (high - low), 1e30F) : 0;
  const auto bin_of = [&](int32_t id) {
    return static_cast<int>(std::min((high - logits[id]) * per_logit, float{kBins - 1}));
  };
  for (int64_t i = 0; i < count; ++i) bins[bin_of(ids_[i])] += weights_[ids_[i]];
  int bin = 0;
  while (bin < kBins && mass + bins[bin] < target) mass += bins[bin++];
  int64_t size = 0;  // number of ids in the bin
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids_[i];
    const int own = bin_of(id);
    if (own == bin) ids_[size++] = id;
    if (own < bin) sums_[id / kChunkIds] += weights_[id];
    if (own > bin) weights_[id] = 0;
  }
  std::sort(ids_, ids_ + size, MoreLikely{logits});
  int64_t needed = 0;
  while (needed < size && mass + weights_[ids_[needed]] < target) {
    mass += weights_[ids_[needed]];
    sums_[ids_[needed] / kChunkIds] += weights_[ids_[needed]];
    ++needed;
  }
  if (needed == size) return false;
  const double last = weights_[ids_[needed]];
  sums_[ids_[needed] / kChunkIds] += last;
  for (int64_t i = needed + 1; i < size; ++i) weights_[ids_[i]] = 0;
  return mass < target - slack_ && mass + last > target + slack_ &&
         last * (1 - kWeightError) >= LeastOfBucket(bucket) &&
         last * (1 + kWeightError) < LeastOfBucket(bucket - 1);
}

std::optional<TokenId> RowWeights::TokenAt(double uniform) const {
  const double target = uniform * std::accumulate(sums_, sums_ + num_chunks_, 0.0);
  double sum = 0;
  int64_t chunk = 0;
  while (chunk < num_chunks_ && sum + sums_[chunk] <= target) sum += sums_[chunk++];
  if (chunk == num_chunks_) return std::nullopt;
  for (int64_t id = chunk * kChunkIds; id < chunk * kChunkIds + IdsOf(chunk); ++id) {
    const double with = weights_[id] >= least_ ? sum + weights_[id] : sum;
    if (with <= target) {
      sum = with;
      continue;
    }
    if (sum < target - slack_ && with > target + slack_) return static_cast<TokenId>(id);
    break;
  }
  return std::nullopt;
}

TokenId RowWeights::SampleInOrder(const Row& row, double top_p, double uniform) const {
  for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) WeighChunk(row, chunk, false);
  const WeightedTokens tokens{nullptr, weights_, vocab_size_};
  if (top_p < 1) bulkhead::KeepTopP(tokens, row.logits.data(), top_p, bucket_sums_, ids_);
  return bulkhead::SampleInOrder(tokens, uniform);
}

}  // namespace bulkhead
