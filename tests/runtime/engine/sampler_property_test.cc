// The Sampler against its definition in plain loops, on rows and settings of every kind: the same
// bits, however it comes by them.
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/portable_math.h"
#include "base/token_sampling.h"
#include "gtest/gtest.h"
#include "runtime/engine/logits_row.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/top_k.h"
#include "tests/runtime/engine/reference_sampler.h"

namespace bulkhead {
namespace {

class Rig {
 public:
  explicit Rig(int64_t vocab_size)
      : scratch_(Sampler::ScratchBytes(vocab_size), std::byte{0xFF}),
        sampler(vocab_size, scratch_.data()) {}

 private:
  std::vector<std::byte> scratch_;

 public:
  Sampler sampler;
};

constexpr int64_t kVocabSizes[] = {1,    2,    5,    16,   63,   64,   65,   100,
                                   1000, 1023, 1024, 1025, 2048, 2500, 5000, 9001};

TEST(SamplerProperties, EveryRowHasTheSampleOfItsDefinition) {
  int64_t decided_in_order = 0;
  int failed = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const int64_t vocab = kVocabSizes[seed % std::size(kVocabSizes)];
    const std::vector<float> row = HardRow(seed, vocab);
    const SampleRow how = HardSettings(seed, vocab);
    const auto want = ReferenceSample(row, how);
    Rig rig(vocab);
    std::vector<float> logits = row;
    // Parts of a row as of several threads.
    const RowThreads threads{1 + static_cast<int>(seed % 9), RunInTurn};
    const auto got = rig.sampler.Sample(absl::MakeSpan(logits), how, threads);
    ASSERT_TRUE(SameSample(got, want))
        << "seed " << seed << ", " << vocab << " ids: " << (got.ok() ? got->id : -1) << " for "
        << (want.ok() ? want->id : -1);
    decided_in_order += rig.sampler.weights().decided_in_order();
    failed += want.ok() ? 0 : 1;
  }
  EXPECT_GT(decided_in_order, 20);  // ties do that
  EXPECT_GT(failed, 100);
}

// What quick sums decide is what sums in order do: these rows are sampled twice.
TEST(SamplerProperties, QuickSumsDecideNearlyAlwaysAndAsThoseInOrderDo) {
  constexpr int64_t kVocab = 40'000;
  Rig quick(kVocab);
  Rig slow(kVocab);
  slow.sampler.weights().set_slack_factor(1e30);
  std::mt19937 random(3);
  int rows = 0;
  for (const float deviation : {0.2F, 1.0F, 3.0F, 10.0F}) {
    std::normal_distribution<float> normal(0, deviation);
    for (int i = 0; i < 40; ++i) {
      std::vector<float> row(kVocab);
      for (float& logit : row) logit = normal(random);
      for (const float top_p : {1.0F, 0.97F, 0.5F}) {
        SampleRow how;
        how.sampling = {.temperature = 0.9F, .top_p = top_p, .seed = 5};
        if (i % 4 == 1) how.sampling.top_k = 3000;  // more than a list holds
        if (i % 4 == 2) how.sampling.min_p = 1e-4F;
        how.position = rows++;
        std::vector<float> one = row;
        std::vector<float> other = row;
        ASSERT_EQ(quick.sampler.Sample(absl::MakeSpan(one), how)->id,
                  slow.sampler.Sample(absl::MakeSpan(other), how)->id)
            << deviation << " " << top_p << " " << i;
      }
    }
  }
  EXPECT_LE(quick.sampler.weights().decided_in_order(), 1);
  EXPECT_GT(slow.sampler.weights().decided_in_order(), rows / 2);
}

// The logit of a weight, and what another must weigh for both to weigh as much.
float LogitBelow(double weight, double* rest) {
  const float logit = std::nextafter(static_cast<float>(std::log(weight)), -1e9F);
  *rest = weight - std::exp(double{logit});
  return logit;
}

// Sums at a border to far fewer digits than quick weights have: a third weight, as small as the
// second one's logit is coarse, brings them there.
TEST(SamplerProperties, AtABorderSumsInOrderDecide) {
  constexpr int kRows = 2000;
  Rig rig(4);
  std::set<TokenId> tokens;
  for (int i = 0; i < kRows; ++i) {
    SampleRow how;
    how.position = i;
    const bool top_p = i % 2 == 1;
    std::vector<float> row = {0, 0, 0, 0};
    double rest = 0;
    if (top_p) {  // tokens 0 and 1 reach top_p, or not quite
      row[1] = -0.1F - static_cast<float>(i) * 1e-4F;
      how.sampling.top_p = 0.8F;
      const double others = (1 + std::exp(double{row[1]})) * (1 / double{how.sampling.top_p} - 1);
      row[2] = LogitBelow(others, &rest);
    } else {  // the sample is token 0, or not quite
      const auto uniform = [&] { return UniformOf(how.sampling.seed, 0, i); };
      while (uniform() < 0.55 || uniform() > 0.9) ++how.sampling.seed;
      row[1] = LogitBelow(1 / uniform() - 1, &rest);
      row[2] = -std::numeric_limits<float>::infinity();
    }
    row[3] = static_cast<float>(std::log(rest));
    if (top_p) {  // what is sampled tells whether token 2 is kept
      while (UniformOf(how.sampling.seed, 0, i) < 0.9) ++how.sampling.seed;
    }
    std::vector<float> logits = row;
    const auto got = rig.sampler.Sample(absl::MakeSpan(logits), how);
    ASSERT_TRUE(SameSample(got, ReferenceSample(row, how))) << i;
    tokens.insert(got->id);
  }
  EXPECT_GE(tokens.size(), 3);  // on both sides of the borders
  EXPECT_GT(rig.sampler.weights().decided_in_order(), kRows * 9 / 10);
}

TEST(SamplerProperties, QuickWeightsAreAsCloseAsIsSaid) {
  std::vector<float> logits;
  for (double x = 0; x > -90; x -= 0.000613) logits.push_back(static_cast<float>(x));
  std::vector<double> quick(logits.size());
  std::vector<double> weights(logits.size());
  const auto count = static_cast<int64_t>(logits.size());
  constexpr float kAll = std::numeric_limits<float>::lowest();
  for (const double per_temperature : {1.0, 0.37, 1.0 / 3}) {
    if (!ComputeWeightsQuickly(logits.data(), count, 0, per_temperature, kAll, quick.data()))
      GTEST_SKIP() << "this CPU has no quick ones";
    ComputeWeights(logits.data(), count, 0, per_temperature, 0, kAll, weights.data());
    EXPECT_EQ(quick[0], 1.0);
    for (int64_t i = 0; i < count; ++i) {
      if (weights[i] < 0x1p-119) continue;
      ASSERT_LE(std::fabs(quick[i] - weights[i]), 0x1p-36 * weights[i]) << logits[i];
    }
  }
}

TEST(SamplerProperties, NotANumberIsFoundAnywhere) {
  constexpr int64_t kVocab = 2100;
  Rig rig(kVocab);
  for (const float bad : {std::nanf(""), -std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (int64_t at = 0; at < kVocab; at += at < 70 || at > 2030 ? 1 : 61) {
      std::vector<float> logits(kVocab, 0.5F);
      logits[at] = bad;
      for (const int threads : {1, 3}) {
        ASSERT_EQ(rig.sampler.Sample(absl::MakeSpan(logits), {}, {threads, RunInTurn}).status(),
                  NotFiniteError({}))
            << at;
      }
    }
  }
}

TEST(SamplerProperties, TheCutBehindTopKKeepsExactlyK) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const int64_t vocab = 2 + static_cast<int64_t>(random() % 3000);
    std::vector<float> logits = HardRow(round * 7 + 1, vocab);
    for (float& logit : logits) logit = std::isnan(logit) || logit > 1e30F ? 0.0F : logit;
    const auto k = 1 + static_cast<int64_t>(random() % (vocab - 1));
    std::vector<double> scratch(vocab);
    const LogitCut cut = CutBehindTopK(logits, k, scratch.data());
    std::vector<TokenId> want(vocab);
    for (TokenId id = 0; id < vocab; ++id) want[id] = id;
    std::sort(want.begin(), want.end(), MoreLikely{logits.data()});
    want.resize(k);
    std::sort(want.begin(), want.end());
    std::vector<TokenId> kept;
    for (TokenId id = 0; id < vocab; ++id) {
      if (logits[id] > cut.least || (logits[id] == cut.least && id < cut.equal_end))
        kept.push_back(id);
    }
    ASSERT_EQ(kept, want) << round;
  }
}

}  // namespace
}  // namespace bulkhead
