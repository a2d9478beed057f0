// Routing: every variant has the values of the oracle and the bits of the promised order.
#include <limits>

#include "tests/kernels/experts/routing.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

class RouteTokensTest : public OpTest {
 protected:
  Routing Route(Backend& backend, const std::vector<float>& logits, int num_experts, int k,
                const RouterOptions& options, const std::vector<float>& bias = {},
                const std::vector<float>& scales = {}) {
    const auto tokens = static_cast<int64_t>(logits.size()) / num_experts;
    Routing routing(tokens, num_experts, k);
    backend.RouteTokens(View(logits, tokens, num_experts, num_experts),
                        bias.empty() ? ConstMatrixView() : RowOf(bias),
                        scales.empty() ? ConstMatrixView() : RowOf(scales), options, routing.view);
    return routing;
  }
};

TEST_P(RouteTokensTest, ChoosesAndWeighsAsTheOracleDoes) {
  const RouterOptions kinds[] = {
      {},
      {.normalizes = true},
      {.scoring = RouterScoring::kSigmoid, .normalizes = true, .scale = 2.5F},
      {.scoring = RouterScoring::kSigmoid,
       .normalizes = true,
       .num_groups = 4,
       .num_chosen_groups = 2,
       .experts_per_group_score = 2},
      {.num_groups = 4, .num_chosen_groups = 1}};
  for (const RouterOptions& options : kinds) {
    for (const int num_experts : {8, 60, 256}) {
      for (const bool has_bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << num_experts << " experts, bias " << has_bias);
        const std::vector<float> logits = RandomFloats(21 * num_experts, 3);
        const std::vector<float> bias =
            has_bias ? RandomFloats(num_experts, 4) : std::vector<float>();
        const Routing got = Route(*backend_, logits, num_experts, 2, options, bias);
        const Routing want = Route(*oracle_, logits, num_experts, 2, options, bias);
        const Routing bits = Route(*ordered_, logits, num_experts, 2, options, bias);
        EXPECT_EQ(got.experts, want.experts);
        ExpectNear(got.weights, want.weights, 1e-5);
        EXPECT_EQ(got.experts, bits.experts);
        ExpectSameBits(got.weights, bits.weights);
      }
    }
  }
}

TEST_P(RouteTokensTest, WeightsAreMultipliedByTheirExpertsScale) {
  constexpr int kCount = 8, kChosen = 3;
  const std::vector<float> logits = NormalFloats(5 * kCount, 7);
  const std::vector<float> scales = {1, 2, 4, 0.5F, 0.25F, 8, 16, 0.125F};
  const RouterOptions options{.normalizes = true, .scale = 2};
  const Routing without = Route(*backend_, logits, kCount, kChosen, options);
  const Routing with = Route(*backend_, logits, kCount, kChosen, options, {}, scales);
  EXPECT_EQ(with.experts, without.experts);
  for (size_t i = 0; i < with.experts.size(); ++i) {
    EXPECT_EQ(with.weights[i], without.weights[i] * scales[with.experts[i]]);
  }
}

TEST_P(RouteTokensTest, SortsPairsByExpertThenByToken) {
  const std::vector<float> logits = RandomFloats(100 * 16, 5);
  const Routing routing = Route(*backend_, logits, 16, 3, {});
  EXPECT_EQ(routing.expert_begin.front(), 0);
  EXPECT_EQ(routing.expert_begin.back(), 300);
  for (int e = 0; e < 16; ++e) {
    for (int pair = routing.expert_begin[e]; pair < routing.expert_begin[e + 1]; ++pair) {
      const int token = routing.pair_token[pair];
      EXPECT_LT(pair == routing.expert_begin[e] ? -1 : routing.pair_token[pair - 1], token);
      bool is_there = false;
      for (int i = 3 * token; i < 3 * token + 3; ++i) {
        is_there |= routing.experts[i] == e && routing.weights[i] == routing.pair_weight[pair];
      }
      EXPECT_TRUE(is_there) << "expert " << e << ", token " << token;
    }
  }
}

TEST_P(RouteTokensTest, TiesGoToTheLowestId) {
  EXPECT_EQ(Route(*backend_, {1, 2, 2, 2, 0}, 5, 2, {}).experts, std::vector<int32_t>({1, 2}));
  EXPECT_EQ(Route(*backend_, {0, 0, 0, 0, 0}, 5, 3, {}).experts, std::vector<int32_t>({0, 1, 2}));
}

// Else a bias that is no number would choose, and nothing would show it.
TEST_P(RouteTokensTest, ANanMakesEveryWeightOfTheTokenNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto expect_nan = [](const Routing& routing) {
    for (const float weight : routing.weights) EXPECT_TRUE(std::isnan(weight));
    for (const int32_t expert : routing.experts) EXPECT_TRUE(expert >= 0 && expert < 5) << expert;
    EXPECT_LT(routing.experts[0], routing.experts[1]);
  };
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    const RouterOptions options = {.scoring = scoring, .normalizes = true};
    expect_nan(Route(*backend_, {nan, 2, nan, 1, nan}, 5, 2, options));
    expect_nan(Route(*backend_, {0, 2, 3, 1, nan}, 5, 2, options));
    expect_nan(Route(*backend_, {0, 2, 3, 1, 4}, 5, 2, options, {0, nan, 0, 0, 0}));
  }
}

TEST_P(RouteTokensTest, BiasesAreThoseOfThePairsAndOfTheTokensExperts) {
  constexpr int kNumExperts = 6, kCols = 37, kTokens = 50;
  const std::vector<float> logits = RandomFloats(kTokens * kNumExperts, 6);
  const std::vector<float> biases = RandomFloats(kNumExperts * kCols, 7);
  for (const bool of_pairs : {true, false}) {
    Compare(1e-5, [&](Backend& backend) {
      const Routing routing = Route(backend, logits, kNumExperts, 2, {.normalizes = true});
      const int64_t rows = of_pairs ? 2 * kTokens : kTokens;
      std::vector<float> x = RandomFloats(rows * kCols, 8);
      const ConstMatrixView view = View(biases, kNumExperts, kCols, kCols);
      if (of_pairs) {
        backend.AddExpertBias(view, routing.view, View(x, rows, kCols, kCols));
      } else {
        backend.AddWeightedBiases(view, routing.view, View(x, rows, kCols, kCols));
      }
      return x;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, RouteTokensTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
