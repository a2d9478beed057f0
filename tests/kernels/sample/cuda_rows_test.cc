// Tokens sampled on a device from whole rows of logits, against the host's sampler: the same ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/sample/op.h"
#include "runtime/engine/candidates.h"
#include "runtime/engine/weighted_tokens.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/sample/rows_to_sample.h"

namespace bulkhead {
namespace {

struct Draw {
  double uniform = 0;
  double top_p = 1;
};

// `draws`: instead of what the rows ask for.
std::vector<int32_t> SampledByDevice(CudaUnderTest& cuda, const Rows& rows,
                                     const std::vector<Draw>& draws = {}) {
  DeviceArrays arrays(*cuda.driver);
  const int64_t n = rows.size();
  std::vector<TokenSampling> params;
  std::vector<int32_t> banned = {-1};  // nobody's
  bool cuts = false;
  for (int i = 0; i < n; ++i) {
    const SampleRow& row = rows.samples[i];
    params.push_back(TokenSamplingOf(row, kSlots - 1 - i, static_cast<int>(banned.size())));
    if (!draws.empty()) {
      params.back().uniform = draws[i].uniform;
      params.back().top_p = draws[i].top_p;
    }
    cuts = cuts || params.back().top_p < 1;
    banned.insert(banned.end(), row.banned.begin(), row.banned.end());
  }
  float* const logits = arrays.Put(rows.logits);
  const int64_t cols = RowScratchCols(rows.vocab);
  float* const scratch = arrays.New<float>(n * cols);
  int32_t* const on_device = arrays.New<int32_t>(n);
  int32_t* const by_slot = arrays.Put(std::vector<int32_t>(kSlots, -99));
  const auto view = [n](float* data, int64_t width) {
    return MatrixView(reinterpret_cast<std::byte*>(data), DType::kF32, n, width);
  };
  cuda.backend->SampleRows(view(logits, rows.vocab), arrays.Put(params), arrays.Put(banned), cuts,
                           view(scratch, cols), on_device, by_slot);
  std::vector<int32_t> sampled = arrays.Get(on_device, n);
  const std::vector<int32_t> last_sampled = arrays.Get(by_slot, kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    const int row = kSlots - 1 - slot;
    EXPECT_EQ(last_sampled[slot], row < n ? std::max(sampled[row], 0) : -99);
  }
  return sampled;
}

void ExpectTheHostsTokens(const Rows& rows, size_t most_devices = 9) {
  ASSERT_LE(rows.size(), kSlots);
  const std::vector<int32_t> want = SampledByHost(rows);
  std::vector<std::unique_ptr<CudaDriver>> drivers = DevicesUnderTest(true);
  drivers.resize(std::min(drivers.size(), most_devices));
  for (std::unique_ptr<CudaDriver>& driver : drivers) {
    CudaUnderTest cuda(std::move(driver));
    EXPECT_EQ(SampledByDevice(cuda, rows), want);
  }
}

// Without ties.
std::vector<float> SmoothRow(int64_t vocab, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(vocab);
  for (float& logit : row) logit = normal(random);
  return row;
}

class WholeRows : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Vocabularies, WholeRows,
                         testing::Values(1, 7, 300, 1023, 1024, 1025, 2500));

TEST_P(WholeRows, EqualTheHostsSamplerUnderEveryFilter) {
  std::mt19937 random(5);
  Rows rows(GetParam());
  for (const SampleRow& filters :
       {Sample(1, 0), Sample(0.7F, 0), Sample(5, 0), Sample(1, 0, 0.9F), Sample(2, 0, 0.3F),
        Sample(1.5F, 0, 0.999F), Sample(1e-3F, 0, 0.5F), Sample(100, 0, 0.99F),
        Sample(1, 0, 1, 0.2F), Sample(1.3F, 0, 0.8F, 0.02F), Sample(1, 0, 1e-6F),
        Sample(30, 0, 0.99999994F), Sample(1e-30F, 0), Sample(1, 0, 0.5F, 1)}) {
    rows.Add(RandomRow(rows.vocab, random), filters);
    rows.Add(SmoothRow(rows.vocab, 3, random), filters);
    SampleRow banned = filters;
    const std::vector<float> row = RandomRow(rows.vocab, random);
    banned.banned = {0, 2, 2, 100000};
    const auto best = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
    if (best > 2) banned.banned.insert(banned.banned.end() - 1, best);
    rows.Add(row, banned);
  }
  ExpectTheHostsTokens(rows);
}

TEST_P(WholeRows, TakeTheLowestIdsAmongTies) {
  Rows rows(GetParam());
  const std::vector<float> equal(rows.vocab, -0.0F);
  std::vector<float> zeroes = equal;
  for (size_t i = 0; i < zeroes.size(); i += 2) zeroes[i] = 0.0F;
  for (const std::vector<float>& row : {equal, zeroes}) {
    for (const float top_p : {1.0F, 0.75F, 0.5F, 0.25F, 0.1F}) rows.Add(row, Sample(1, 0, top_p));
  }
  ExpectTheHostsTokens(rows);
}

TEST_P(WholeRows, WithoutATokenAreTheHostsAndTheirOwnAlone) {
  std::mt19937 random(6);
  Rows rows(GetParam());
  const int64_t last = rows.vocab - 1;
  for (const SampleRow& filters : {Sample(0.9F, 0), Sample(0.9F, 0, 0.9F)}) {
    const std::vector<float> fine = RandomRow(rows.vocab, random);
    const auto with = [&](int64_t at, float logit) {
      std::vector<float> row = fine;
      row[at] = logit;
      return row;
    };
    rows.Add(fine, filters);
    rows.Add(with(last, NAN), filters);
    rows.Add(with(0, -std::nanf("")), filters);
    rows.Add(with(last / 2, kInfinity), filters);
    rows.Add(with(last, -kInfinity), filters);
    rows.Add(with(0, std::numeric_limits<float>::max()), filters);
    rows.Add(std::vector<float>(rows.vocab, -std::numeric_limits<float>::max()), filters);
    rows.Add(std::vector<float>(rows.vocab, -kInfinity), filters);
    std::vector<float> one(rows.vocab, -kInfinity);
    one[last] = -3;
    rows.Add(one, filters);
    SampleRow banned = filters;
    banned.banned = {static_cast<TokenId>(last)};
    rows.Add(one, banned);
    rows.Add(with(last, kInfinity), banned);  // what is banned is looked at, too
    rows.Add(with(last, NAN), banned);
  }
  ExpectTheHostsTokens(rows);
}

TEST(ManyWholeRows, HaveTheHostsTokens) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> unit(0, 1);
  for (int round = 0; round < 40; ++round) {
    Rows rows(1 + static_cast<int64_t>(random() % 3000));
    while (rows.size() < kSlots) {
      const bool cuts = random() % 2 == 0;
      const SampleRow filters =
          Sample(std::exp(4 * unit(random) - 2), 0, cuts ? 1 - std::pow(unit(random), 3.0F) : 1.0F,
                 random() % 4 == 0 ? 0.1F * unit(random) : 0.0F);
      if (!(filters.sampling.top_p > 0)) continue;
      rows.Add(random() % 2 == 0 ? RandomRow(rows.vocab, random)
                                 : SmoothRow(rows.vocab, 4 * unit(random), random),
               filters);
    }
    ExpectTheHostsTokens(rows, 1);
  }
}

// More ids in the bucket where top-p cuts than are taken at once.
TEST(LongWholeRows, AreCutWhereverTheLastTokenIs) {
  constexpr int64_t kVocab = 9000;
  std::mt19937 random(9);
  Rows rows(kVocab);
  for (const float deviation : {0.0F, 0.001F, 0.02F, 1.0F}) {
    const std::vector<float> row = SmoothRow(kVocab, deviation, random);
    for (const float top_p : {0.02F, 0.5F, 0.97F}) rows.Add(row, Sample(1, 0, top_p));
  }
  ExpectTheHostsTokens(rows, 1);
}

// A row's weights at temperature 1, and the host's decisions on them.
struct Weighed {
  explicit Weighed(const std::vector<float>& row)
      : logits(row), weights(row.size()), bucket_sums(kNumBuckets), members(row.size()) {
    const float max = *std::max_element(row.begin(), row.end());
    for (size_t id = 0; id < row.size(); ++id) {
      weights[id] = WeightOf(row[id], max, 1);
      if (weights[id] < kNoWeight) weights[id] = 0;
    }
  }
  WeightedTokens tokens() {
    return {nullptr, weights.data(), static_cast<int64_t>(weights.size())};
  }
  void Keep(double top_p) {
    if (top_p < 1) KeepTopP(tokens(), logits.data(), top_p, bucket_sums.data(), members.data());
  }
  double SumUpTo(int64_t id) const {  // in order
    double before = 0, chunk = 0;
    for (int64_t i = 0; i <= id; ++i) {
      if (i % kChunkIds == 0) before += std::exchange(chunk, 0.0);
      chunk += weights[i];
    }
    return before + chunk;
  }
  // Of the likeliest ids, up to `id`: bucket after bucket, in the last one by logits.
  double ShareOfLikeliest(int64_t id) {
    const int bucket = BucketOf(weights[id]);
    std::vector<double> sums(kNumBuckets);
    std::vector<int64_t> likelier;
    for (int64_t i = 0; i < std::ssize(weights); ++i) {
      sums[BucketOf(weights[i])] += weights[i];
      if (BucketOf(weights[i]) == bucket && logits[i] >= logits[id]) likelier.push_back(i);
    }
    std::sort(likelier.begin(), likelier.end(),
              [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    double in_bucket = 0;
    for (const int64_t i : likelier) in_bucket += weights[i];
    const double mass = std::accumulate(sums.begin(), sums.begin() + bucket, 0.0);
    return (mass + in_bucket) / SumUpTo(std::ssize(weights) - 1);
  }

  const std::vector<float>& logits;
  std::vector<double> weights;
  std::vector<double> bucket_sums;
  std::vector<int32_t> members;
};

void ExpectTheDrawsOfTheHost(const std::vector<std::vector<float>>& logits,
                             const std::vector<Draw>& draws) {
  Rows rows(std::ssize(logits[0]));
  std::vector<int32_t> want;
  for (size_t i = 0; i < logits.size(); ++i) {
    Weighed weighed(logits[i]);
    weighed.Keep(draws[i].top_p);
    want.push_back(SampleInOrder(weighed.tokens(), draws[i].uniform));
    rows.Add(logits[i], Sample(1, 0));
  }
  CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
  EXPECT_EQ(SampledByDevice(cuda, rows, draws), want);
}

// The first and the last random number there are, and 1, as if a product had been rounded up.
TEST(WholeRowsByUniform, EndAtTheFirstAndTheLastTokenThatHasAWeight) {
  constexpr double kBelowOne = 1 - 0x1p-53;
  std::mt19937 random(12);
  std::vector<std::vector<float>> rows;
  std::vector<Draw> draws;
  for (int i = 0; i < kSlots; ++i) {
    std::vector<float> row = SmoothRow(2100, 2, random);
    if (i % 4 == 0) std::fill(row.begin(), row.end(), 1.0F);
    if (i % 4 == 1) std::fill(row.begin() + 500, row.end(), -1000.0F);  // chunks without a weight
    if (i % 4 == 2) std::fill(row.begin(), row.begin() + 1500, -1000.0F);
    rows.push_back(std::move(row));
    const double chosen[] = {0, kBelowOne, 0.5, 1, i / 2100.0};
    draws.push_back({chosen[i % 5], i % 3 == 0 ? 0.7 : 1});
  }
  ExpectTheDrawsOfTheHost(rows, draws);
}

// Random numbers, and shares that top-p keeps, on the border between two tokens: the last bit of
// each sum decides.
TEST(WholeRowsByUniform, EndWhereTheSumsInOrderDo) {
  constexpr int64_t kVocab = 2100;
  std::mt19937 random(13);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::vector<float>> rows;
    std::vector<Draw> draws;
    for (int i = 0; i < kSlots; ++i) {
      rows.push_back(SmoothRow(kVocab, 0.5F + 0.5F * (i % 4), random));
      Weighed weighed(rows.back());
      Draw draw;
      if (i % 2 == 0) draw.top_p = std::min(1.0, weighed.ShareOfLikeliest(random() % kVocab));
      weighed.Keep(draw.top_p);
      draw.uniform =
          std::min(1 - 0x1p-53, weighed.SumUpTo(random() % kVocab) / weighed.SumUpTo(kVocab - 1));
      draws.push_back(draw);
    }
    ExpectTheDrawsOfTheHost(rows, draws);
  }
}

TEST(WholeRowsOfNobody, AreLeftAlone) {
  CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
  DeviceArrays arrays(*cuda.driver);
  const MatrixView logits(reinterpret_cast<std::byte*>(arrays.New<float>(40)), DType::kF32, 1, 40);
  const int64_t cols = RowScratchCols(40);
  const MatrixView scratch(reinterpret_cast<std::byte*>(arrays.New<float>(cols)), DType::kF32, 1,
                           cols);
  int32_t* const sampled = arrays.Put<int32_t>({-98, -99});
  cuda.backend->SampleRows(logits, arrays.Put<TokenSampling>({{}}), nullptr, true, scratch, sampled,
                           sampled + 1);
  EXPECT_EQ(arrays.Get(sampled, 2), (std::vector<int32_t>{-98, -99}));
}

}  // namespace
}  // namespace bulkhead
