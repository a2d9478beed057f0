#include "runtime/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/portable_math.h"
#include "base/token_sampling.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/logits_processor.h"

namespace bulkhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Rig {
 public:
  explicit Rig(int64_t vocab_size)
      : scratch_(Sampler::ScratchBytes(vocab_size)), sampler_(vocab_size, scratch_.data()) {}
  absl::StatusOr<GeneratedToken> Sample(std::vector<float> logits, const SampleRow& row) {
    return sampler_.Sample(absl::MakeSpan(logits), row);
  }

 private:
  std::vector<std::byte> scratch_;
  Sampler sampler_;
};

std::vector<float> Logits(int64_t vocab_size, uint32_t seed, double spread) {
  std::mt19937 random(seed);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
    // Coarse values, so that there are ties.
    logit = static_cast<float>(std::round(sum * spread * 64) / 64);
  }
  return logits;
}

// The same definition in plain double, with a full sort: id -> probability, by id.
std::vector<double> Distribution(const std::vector<float>& logits, const SampleRow& row) {
  const auto vocab = static_cast<int>(logits.size());
  std::vector<int> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int id) {
    return std::count(row.banned.begin(), row.banned.end(), id) > 0 || logits[id] == -kInfinity;
  });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::vector<double> weights(vocab, 0);
  for (const int id : order) {
    weights[id] =
        std::exp((double{logits[id]} - logits[order[0]]) / double{row.sampling.temperature});
  }
  std::erase_if(order, [&](int id) { return weights[id] < double{row.sampling.min_p}; });
  if (row.sampling.top_k > 0 && row.sampling.top_k < static_cast<int>(order.size())) {
    order.resize(row.sampling.top_k);
  }
  double total = 0;
  for (const int id : order) total += weights[id];
  size_t kept = 0;
  for (double mass = 0; kept < order.size() && mass < double{row.sampling.top_p} * total; ++kept) {
    mass += weights[order[kept]];
  }
  if (row.sampling.top_p < 1) order.resize(kept);
  total = 0;
  for (const int id : order) total += weights[id];
  std::vector<double> probabilities(vocab, 0);
  for (const int id : order) probabilities[id] = weights[id] / total;
  return probabilities;
}

SampleRow Row(float temperature, int top_k, float top_p, float min_p) {
  SampleRow row;
  row.sampling.temperature = temperature;
  row.sampling.top_k = top_k;
  row.sampling.top_p = top_p;
  row.sampling.min_p = min_p;
  row.sampling.seed = 99;
  return row;
}

TEST(PortableMathTest, ExpAndLogAgreeWithTheLibrary) {
  double worst = 0;
  for (double x = 0; x > -700; x -= 0.0137) {
    worst = std::max(worst, std::fabs(ExpOfNonPositive(x) / std::exp(x) - 1));
  }
  EXPECT_LT(worst, 1e-15);
  EXPECT_EQ(ExpOfNonPositive(0), 1.0);
  EXPECT_LT(ExpOfNonPositive(-1e30), 1e-307);
  EXPECT_LT(ExpOfNonPositive(-std::numeric_limits<double>::infinity()), 1e-307);
  for (double x = 1; x < 1e6; x *= 1.00137) {
    EXPECT_NEAR(LogOfAtLeastOne(x), std::log(x), 2e-15 * std::max(1.0, std::log(x)));
  }
  EXPECT_EQ(LogOfAtLeastOne(1), 0.0);
}

TEST(PortableMathTest, PhiloxGivesItsPublishedNumbers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PortableMathTest, UniformNumbersDependOnSeedPositionAndSampleAlone) {
  EXPECT_EQ(UniformOf(1, 0, 5), UniformOf(1, 0, 5));
  EXPECT_NE(UniformOf(1, 0, 5), UniformOf(1, 0, 6));
  EXPECT_NE(UniformOf(1, 0, 5), UniformOf(2, 0, 5));
  EXPECT_NE(UniformOf(1, 0, 5), UniformOf(1, 1, 5));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = UniformOf(8, 0, i);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfTheBest) {
  Rig rig(5);
  SampleRow row = Row(0, 0, 1, 0);
  EXPECT_EQ(rig.Sample({1, 3, 2, 3, 0}, row)->id, 1);
  row.banned = {1};
  EXPECT_EQ(rig.Sample({1, 3, 2, 3, 0}, row)->id, 3);
  row.banned = {1, 3, 77};
  EXPECT_EQ(rig.Sample({1, 3, 2, 3, 0}, row)->id, 2);
}

TEST(SamplerTest, LogitsThatAreNoNumbersEndTheRequest) {
  Rig rig(3);
  for (const float temperature : {0.0F, 1.0F}) {
    const SampleRow row = Row(temperature, 0, 1, 0);
    EXPECT_EQ(rig.Sample({1, std::nanf(""), 2}, row).status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(rig.Sample({1, kInfinity, 2}, row).status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(rig.Sample({-kInfinity, -kInfinity, -kInfinity}, row).status().code(),
              absl::StatusCode::kInternal);
    EXPECT_EQ(rig.Sample({-kInfinity, 4, -kInfinity}, row)->id, 1);
  }
  SampleRow row = Row(1, 0, 1, 0);
  row.banned = {0, 1, 2};
  EXPECT_EQ(rig.Sample({1, 1, 1}, row).status().code(), absl::StatusCode::kInternal);
}

struct Filters {
  float temperature;
  int top_k;
  float top_p;
  float min_p;
};

class SamplerDistributionTest : public testing::TestWithParam<Filters> {};

// Samples over the whole range of random numbers: the running sum over ids must equal the
// reference's.
TEST_P(SamplerDistributionTest, EqualsTheReferenceInDouble) {
  const Filters filters = GetParam();
  for (const int64_t vocab : {7, 1000, 1025, 5000}) {
    const std::vector<float> logits = Logits(vocab, static_cast<uint32_t>(vocab), 2.0);
    Rig rig(vocab);
    SampleRow row = Row(filters.temperature, filters.top_k, filters.top_p, filters.min_p);
    row.banned = {2, 5};
    const std::vector<double> want = Distribution(logits, row);
    const int draws = vocab <= 1025 ? 1000 : 200;
    for (int i = 0; i < draws; ++i) {
      row.position = i;
      const double u = UniformOf(row.sampling.seed, 0, static_cast<uint64_t>(i));
      const TokenId id = rig.Sample(logits, row)->id;
      ASSERT_GT(want[id], 0) << "vocab " << vocab << " id " << id;
      const double before = std::accumulate(want.begin(), want.begin() + id, 0.0);
      ASSERT_LE(before, u + 1e-12);
      ASSERT_GE(before + want[id], u - 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SamplerDistributionTest,
                         testing::Values(Filters{1, 0, 1, 0}, Filters{0.7F, 0, 1, 0},
                                         Filters{1.5F, 20, 1, 0}, Filters{1, 1, 1, 0},
                                         Filters{1, 3000, 1, 0}, Filters{1, 0, 0.9F, 0},
                                         Filters{1, 0, 0.05F, 0}, Filters{1, 0, 0.9999F, 0},
                                         Filters{1, 0, 1, 0.1F}, Filters{1, 0, 1, 1},
                                         Filters{0.8F, 40, 0.95F, 0.02F},
                                         Filters{1e-3F, 0, 0.9F, 0}, Filters{100, 0, 0.5F, 0}));

TEST(SamplerTest, FrequenciesPassAChiSquareTest) {
  const std::vector<float> logits = Logits(20, 5, 1.0);
  Rig rig(20);
  SampleRow row = Row(1, 0, 1, 0);
  const std::vector<double> want = Distribution(logits, row);
  for (const uint64_t seed : {1, 2, 3}) {
    row.sampling.seed = seed;
    std::vector<int> seen(20, 0);
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      row.position = i;
      ++seen[rig.Sample(logits, row)->id];
    }
    double chi_square = 0;
    for (int id = 0; id < 20; ++id) {
      const double expected = want[id] * kDraws;
      chi_square += (seen[id] - expected) * (seen[id] - expected) / expected;
    }
    EXPECT_LT(chi_square, 43.8) << "seed " << seed;  // 19 degrees of freedom, p = 0.001
  }
}

TEST(SamplerTest, TopKKeepsExactlyKAmongTies) {
  Rig rig(6);
  SampleRow row = Row(1, 3, 1, 0);
  std::vector<int> seen(6, 0);
  for (int i = 0; i < 500; ++i) {
    row.position = i;
    ++seen[rig.Sample({2, 1, 2, 2, 2, 1}, row)->id];
  }
  EXPECT_THAT(seen, testing::ElementsAre(testing::Gt(0), 0, testing::Gt(0), testing::Gt(0), 0, 0));
}

TEST(SamplerTest, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = Logits(3000, 1, 3.0);
  Rig rig(3000);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  SampleRow row = Row(0.5F, 2, 1, 0);
  row.num_logprobs = 4;
  row.banned = {8};
  const GeneratedToken token = *rig.Sample(logits, row);
  EXPECT_NEAR(*token.logprob, logits[token.id] - std::log(sum), 1e-5);
  ASSERT_EQ(token.top.size(), 4);
  std::vector<int> order(3000);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(token.top[i].id, order[i]);
    EXPECT_NEAR(token.top[i].logprob, logits[order[i]] - std::log(sum), 1e-5);
  }
  row.num_logprobs = 0;
  EXPECT_TRUE(rig.Sample(logits, row)->top.empty());
  EXPECT_TRUE(rig.Sample(logits, row)->logprob.has_value());
}

TEST(SamplerTest, ChangedLogitsAreSampledAndRawOnesReported) {
  const std::vector<float> logits = Logits(3000, 2, 3.0);
  Rig rig(3000);
  std::vector<TokenId> order(3000);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  LogitsParams params;
  params.bias = {{order[0], -100}};
  params.bad_words = {{order[1]}};
  const LogitsProcessor processor(params);
  for (const auto& filters : {Row(0, 0, 1, 0), Row(1, 1, 1, 0)}) {
    SampleRow row = filters;
    row.num_logprobs = 2;
    EXPECT_EQ(rig.Sample(logits, row)->id, order[0]);
    EXPECT_EQ(rig.Sample(logits, row)->rank, 1);
    row.logits = &processor;
    const GeneratedToken token = *rig.Sample(logits, row);
    EXPECT_EQ(token.id, order[2]);
    EXPECT_EQ(token.rank, 3);
    EXPECT_EQ(token.top[0].id, order[0]);
    EXPECT_LT(*token.logprob, token.top[1].logprob);
  }
}

TEST(SamplerTest, RanksOfEqualLogitsAreThoseOfTheList) {
  Rig rig(5);
  const std::vector<float> logits = {1, 2, 2, -kInfinity, 2};
  SampleRow row = Row(0, 0, 1, 0);
  row.num_logprobs = 0;
  std::vector<int> ranks;
  for (TokenId id = 0; id < 5; ++id) {
    LogitsParams params;
    params.allowed = {id};
    const LogitsProcessor processor(params);
    row.logits = &processor;
    const auto token = rig.Sample(logits, row);
    ranks.push_back(token.ok() ? *token->rank : 0);
  }
  EXPECT_THAT(ranks, testing::ElementsAre(4, 1, 2, 0, 3));
}

TEST(SamplerTest, ARequestThatLeavesNothingToSampleIsItsClientsError) {
  Rig rig(4);
  LogitsParams params;
  params.allowed = {2};
  const LogitsProcessor processor(params);
  SampleRow row = Row(1, 0, 1, 0);
  row.logits = &processor;
  EXPECT_EQ(rig.Sample({1, 2, 3, 4}, row)->id, 2);
  row.banned = {2};
  const absl::Status status = rig.Sample({1, 2, 3, 4}, row).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("allowed_token_ids"));
}

TEST(SamplerTest, SameBitsOnEveryMachine) {
  // Golden ids: they change only with the arithmetic.
  const std::vector<float> logits = Logits(5000, 77, 2.5);
  Rig rig(5000);
  SampleRow row = Row(0.9F, 0, 0.97F, 0.001F);
  uint64_t hash = 0;
  for (int i = 0; i < 1000; ++i) {
    row.position = i;
    hash = hash * 1000003 + static_cast<uint64_t>(rig.Sample(logits, row)->id);
  }
  EXPECT_EQ(hash, 6718536759495748392ULL);
}

}  // namespace
}  // namespace bulkhead
