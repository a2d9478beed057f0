// Tokens sampled on a device from the lists of several ranks, against the host's sampler on whole
// rows: the same ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "kernels/sample/op.h"
#include "runtime/engine/candidates.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/sample/rows_to_sample.h"

namespace bulkhead {
namespace {

// Rank r has the columns [begins[r], begins[r + 1]) and makes `slices` lists of them.
std::vector<int32_t> SampledByDevice(CudaUnderTest& cuda, const Rows& rows,
                                     const std::vector<int64_t>& begins, int64_t slices) {
  DeviceArrays arrays(*cuda.driver);
  const int64_t n = rows.size();
  const auto ranks = static_cast<int64_t>(begins.size()) - 1;
  const int64_t cols_of_rank = slices * kCandidateCols;
  const float* const logits = arrays.Put(rows.logits);
  float* const lists = arrays.New<float>(n * ranks * cols_of_rank);
  const MatrixView all(reinterpret_cast<std::byte*>(lists), DType::kF32, ranks * n, cols_of_rank);
  std::vector<TokenSampling> params;
  std::vector<int32_t> banned = {-1};  // nobody's
  for (int i = 0; i < n; ++i) {
    const SampleRow& row = rows.samples[i];
    params.push_back(TokenSamplingOf(row, kSlots - 1 - i, static_cast<int>(banned.size())));
    banned.insert(banned.end(), row.banned.begin(), row.banned.end());
  }
  const TokenSampling* const on_device_params = arrays.Put(params);
  for (int64_t r = 0; r < ranks; ++r) {
    const ConstMatrixView part(reinterpret_cast<const std::byte*>(logits + begins[r]), DType::kF32,
                               n, begins[r + 1] - begins[r], rows.vocab);
    // Only the first rank knows which rows are greedy.
    cuda.backend->SelectCandidates(part, begins[r], r == 0 ? on_device_params : nullptr,
                                   all.Rows(r * n, n));
  }
  int32_t* const on_device = arrays.New<int32_t>(n);
  int32_t* const by_slot = arrays.Put(std::vector<int32_t>(kSlots, -99));
  cuda.backend->Sample(all, static_cast<int>(ranks), on_device_params, arrays.Put(banned),
                       on_device, by_slot);
  std::vector<int32_t> sampled = arrays.Get(on_device, n);
  const std::vector<int32_t> last_sampled = arrays.Get(by_slot, kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    const int row = kSlots - 1 - slot;
    EXPECT_EQ(last_sampled[slot], row < n ? std::max(sampled[row], 0) : -99);
  }
  return sampled;
}

void ExpectTheHostsTokens(const Rows& rows, const std::vector<int64_t>& begins, int64_t slices) {
  ASSERT_LE(rows.size(), kSlots);
  const std::vector<int32_t> want = SampledByHost(rows);
  for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(true)) {
    CudaUnderTest cuda(std::move(driver));
    EXPECT_EQ(SampledByDevice(cuda, rows, begins, slices), want);
  }
}

struct Split {
  std::vector<int64_t> begins;
  int64_t slices = 1;
};
class Sampling : public testing::TestWithParam<Split> {};
INSTANTIATE_TEST_SUITE_P(Splits, Sampling,
                         testing::Values(Split{{0, 5}}, Split{{0, 300}}, Split{{0, 40, 40, 90}},
                                         Split{{0, 600, 1200}}, Split{{0, 700, 1100, 2500}, 2},
                                         Split{{0, 5000}, 3}, Split{{0, 3, 9}, 4}));

TEST_P(Sampling, EqualsTheHostsSamplerUnderEveryFilter) {
  std::mt19937 random(5);
  Rows rows(GetParam().begins.back());
  const int vocab = static_cast<int>(rows.vocab);
  for (const SampleRow& filters :
       {Sample(0, 0), Sample(1, 1), Sample(0.7F, 40), Sample(1.3F, 256), Sample(1, 50, 0.9F),
        Sample(0.6F, 20, 0.95F, 0.05F), Sample(5, 200, 0.3F), Sample(1, 64, 0.999F),
        Sample(2, 100, 1, 0.2F), Sample(1e-3F, 30, 0.5F), Sample(100, 256, 0.99F, 1e-4F)}) {
    rows.Add(RandomRow(vocab, random), filters);
    SampleRow banned = filters;
    if (banned.sampling.top_k > 200) banned.sampling.top_k = 200;
    const std::vector<float> row = RandomRow(vocab, random);
    banned.banned = {0, 2};
    const auto best = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
    if (best > 2) banned.banned.push_back(best);
    rows.Add(row, banned);
  }
  ExpectTheHostsTokens(rows, GetParam().begins, GetParam().slices);
}

TEST_P(Sampling, TakesTheLowestIdAmongTies) {
  Rows rows(GetParam().begins.back());
  const std::vector<float> equal(rows.vocab, -0.0F);
  std::vector<float> zeroes = equal;
  for (size_t i = 0; i < zeroes.size(); i += 2) zeroes[i] = 0.0F;
  for (const std::vector<float>& row : {equal, zeroes}) {
    rows.Add(row, Sample(0, 0));
    rows.Add(row, Sample(1, 3));
    rows.Add(row, Sample(1, 256, 0.5F));
  }
  ExpectTheHostsTokens(rows, GetParam().begins, GetParam().slices);
}

TEST_P(Sampling, RowsWithoutATokenAreTheHostsAndTheirOwnAlone) {
  std::mt19937 random(6);
  Rows rows(GetParam().begins.back());
  const int64_t last = rows.vocab - 1;
  for (const SampleRow& filters : {Sample(0, 0), Sample(0.9F, 10, 0.9F)}) {
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
  }
  ExpectTheHostsTokens(rows, GetParam().begins, GetParam().slices);
}

TEST(SamplingOfLongRows, FindsTheLikeliestWhereverTheyAre) {
  constexpr int64_t kVocab = 20000;
  Rows rows(kVocab);
  std::vector<float> ascending(kVocab), descending(kVocab);
  for (int64_t i = 0; i < kVocab; ++i) {
    ascending[i] = static_cast<float>(i) / 512;
    descending[i] = static_cast<float>(-i) / 512;
  }
  // A thread reads every 512th: half of them have nearly all that are large, and more than a block
  // has room for reach the smallest of their greatest.
  std::vector<float> uneven(kVocab, -20);
  for (int64_t i = 0; i < kVocab; ++i) {
    if (i % 512 < 255) uneven[i] = static_cast<float>(i * 37 % 5003) / 512;
    if (i % 512 == 255) uneven[i] = -10;
  }
  std::mt19937 random(9);
  for (const std::vector<float>& row : {ascending, descending, uneven, RandomRow(kVocab, random)}) {
    rows.Add(row, Sample(0, 0));
    rows.Add(row, Sample(1, 256));
    rows.Add(row, Sample(1, 256, 0.8F));
  }
  ExpectTheHostsTokens(rows, {0, kVocab}, 1);
  ExpectTheHostsTokens(rows, {0, 7000, kVocab}, 2);
}

// Through the range of random numbers: the running sums must be the host's, wherever a sample ends.
TEST(SamplingOfOneRow, FollowsTheHostThroughManyPositions) {
  constexpr int64_t kVocab = 3000;  // in three chunks of the sums
  std::mt19937 random(10);
  const std::vector<float> row = RandomRow(kVocab, random);
  for (const SampleRow& filters : {Sample(3, 256), Sample(1.5F, 250, 0.9F, 0.01F)}) {
    Rows rows(kVocab);
    for (int i = 0; i < kSlots; ++i) rows.Add(row, filters);
    const std::vector<int32_t> want = SampledByHost(rows);
    EXPECT_GT(std::set<int32_t>(want.begin(), want.end()).size(), 20U);
    CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
    EXPECT_EQ(SampledByDevice(cuda, rows, {0, 1500, kVocab}, 1), want);
  }
}

TEST(SamplingOfNoRow, WritesNothing) {
  CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
  DeviceArrays arrays(*cuda.driver);
  const ConstMatrixView lists(reinterpret_cast<const std::byte*>(arrays.New<float>(kCandidateCols)),
                              DType::kF32, 1, kCandidateCols);
  int32_t* const sampled = arrays.Put<int32_t>({-98, -99});
  cuda.backend->Sample(lists, 1, arrays.Put<TokenSampling>({{}}), nullptr, sampled, sampled + 1);
  EXPECT_EQ(arrays.Get(sampled, 2), (std::vector<int32_t>{-98, -99}));
}

TEST(SamplingOfAGreedyRow, OnlyTheFirstOfEachListIsWritten) {
  constexpr int64_t kCols = 700;
  constexpr int64_t kLists = 2;
  constexpr float kUnwritten = -99;
  std::vector<float> logits(kCols * 2);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 31 % kCols);
  TokenSampling greedy{.slot = 0}, banned{.slot = 0, .banned_count = 1};
  CudaUnderTest cuda(std::move(DevicesUnderTest(true)[0]));
  DeviceArrays arrays(*cuda.driver);
  float* const lists = arrays.Put(std::vector<float>(2 * kLists * kCandidateCols, kUnwritten));
  cuda.backend->SelectCandidates(
      ConstMatrixView(reinterpret_cast<const std::byte*>(arrays.Put(logits)), DType::kF32, 2,
                      kCols),
      1000, arrays.Put<TokenSampling>({greedy, banned}),
      MatrixView(reinterpret_cast<std::byte*>(lists), DType::kF32, 2, kLists * kCandidateCols));
  const std::vector<float> got = arrays.Get(lists, 2 * kLists * kCandidateCols);
  for (int64_t list = 0; list < kLists; ++list) {
    const float* const first = &got[list * kCandidateCols];
    const float* const slice = &logits[list * kCols / kLists];
    const float* const best = std::max_element(slice, slice + kCols / kLists);
    EXPECT_EQ(first[0], *best);
    EXPECT_EQ(std::bit_cast<int32_t>(first[kCandidates]), 1000 + best - logits.data());
    EXPECT_EQ(std::count(first, first + kCandidateCols, kUnwritten), kCandidateCols - 2);
    EXPECT_EQ(std::count(first + kLists * kCandidateCols, first + (kLists + 1) * kCandidateCols,
                         kUnwritten),
              0);
  }
}

TEST(SamplingOfALongRow, HasAsManyListsAsSlices) {
  EXPECT_EQ(ListsOfRank(0), 1);
  EXPECT_EQ(ListsOfRank(kSliceCols), 1);
  EXPECT_EQ(ListsOfRank(kSliceCols + 1), 2);
  EXPECT_EQ(ListsOfRank(128256), 8);
}

TEST(FillInSampled, PutsEverySlotsIdWhereThePlanKnewNone) {
  const int tokens = 300;
  std::vector<int32_t> ids(tokens), token_seq(tokens), want(tokens);
  const std::vector<int32_t> seq_slot = {5, 0, 3}, last_sampled = {100, 101, 102, 103, 104, 105};
  for (int t = 0; t < tokens; ++t) {
    token_seq[t] = t / 100;
    ids[t] = t % 7 == 0 ? kLastSampled : t;
    want[t] = t % 7 == 0 ? last_sampled[seq_slot[token_seq[t]]] : t;
  }
  for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(true)) {
    CudaUnderTest cuda(std::move(driver));
    DeviceArrays arrays(*cuda.driver);
    int32_t* const filled = arrays.Put(ids);
    const StepIndex index{.num_seqs = 3,
                          .num_tokens = tokens,
                          .seq_slot = arrays.Put(seq_slot),
                          .token_seq = arrays.Put(token_seq)};
    cuda.backend->FillInSampled(index, arrays.Put(last_sampled), filled);
    EXPECT_EQ(arrays.Get(filled, tokens), want);
  }
}

}  // namespace
}  // namespace bulkhead
