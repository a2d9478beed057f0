// Routers on CUDA against the reference: all kinds of them, any number of pairs, experts with all
// pairs and with none; the same in every order of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "tests/kernels/cuda/padded_matrix.h"
#include "tests/kernels/experts/expert_workspace.h"
#include "tests/kernels/experts/routing.h"
#include "tests/kernels/op_test.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

struct Router {
  int num_experts = 8;
  int k = 2;
  RouterOptions options = {};
  std::vector<float> bias = {};
  std::vector<float> scales = {};
};

// `padding`: which tokens pad the step.
Routing Route(Backend& backend, const Router& router, const std::vector<float>& logits,
              const ExpertRouting& padding = {}) {
  const int num_experts = router.num_experts;
  const ExpertWorkspace workspace(backend, num_experts, router.k, 64);
  const auto tokens = static_cast<int64_t>(logits.size()) / num_experts;
  Routing routing(tokens, num_experts, router.k);
  routing.view.token_seq = padding.token_seq;
  routing.view.seq_slot = padding.seq_slot;
  routing.view.padding_slot = padding.padding_slot;
  backend.RouteTokens(View(logits, tokens, num_experts, num_experts),
                      router.bias.empty() ? ConstMatrixView() : RowOf(router.bias),
                      router.scales.empty() ? ConstMatrixView() : RowOf(router.scales),
                      router.options, routing.view);
  Wait(backend);
  return routing;
}

void ExpectRoutedAsByReference(const Router& router, const std::vector<float>& logits,
                               bool few = true) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const Routing want = Route(*NewReferenceBackend(*host), router, logits);
  for (CudaUnderTest& cuda : AllSchedules(few)) {
    const Routing got = Route(*cuda.backend, router, logits);
    EXPECT_EQ(got.experts, want.experts);
    EXPECT_EQ(got.expert_begin, want.expert_begin);
    EXPECT_EQ(got.pair_token, want.pair_token);
    ExpectNear(got.weights, want.weights, 1e-5);
    ExpectNear(got.pair_weight, want.pair_weight, 1e-5);
  }
}

std::vector<RouterOptions> AllKinds() {
  return {{},
          {.normalizes = true},
          {.scoring = RouterScoring::kSigmoid, .normalizes = true, .scale = 2.5F},
          {.scoring = RouterScoring::kSigmoid,
           .normalizes = true,
           .num_groups = 4,
           .num_chosen_groups = 2,
           .experts_per_group_score = 2},
          {.num_groups = 4, .num_chosen_groups = 1},
          {.num_groups = 2, .num_chosen_groups = 2, .experts_per_group_score = 5}};
}

TEST(CudaRouteTokens, ChoosesAndWeighsAsTheReferenceDoes) {
  for (const RouterOptions& options : AllKinds()) {
    for (const int num_experts : {8, 60, 256, 1024}) {
      for (const bool has_bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << num_experts << " experts, " << options.num_groups
                                        << " groups, bias " << has_bias);
        Router router{num_experts, 2, options};
        if (has_bias) {
          router.bias = RandomFloats(num_experts, 4);
          router.scales = RandomFloats(num_experts, 6);
        }
        ExpectRoutedAsByReference(router, RandomFloats(11 * num_experts, 3));
      }
    }
  }
}

TEST(CudaRouteTokens, SortsAnyNumberOfPairs) {
  for (const int tokens : {1, 2, 63, 64, 65, 512}) {
    for (const auto& [num_experts, k] : {std::pair{8, 2}, {8, 8}, {128, 8}, {300, 40}}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << k << " of " << num_experts);
      ExpectRoutedAsByReference({num_experts, k, {.normalizes = true}},
                                RandomFloats(int64_t{tokens} * num_experts, 5), true);
    }
  }
}

// The same experts for all tokens: the others have no pair.
TEST(CudaRouteTokens, SortsPairsOfFewExperts) {
  std::vector<float> logits(100 * 16, -1.0F);
  for (int token = 0; token < 100; ++token) {
    logits[token * 16 + 3] = 1;
    logits[token * 16 + 15] = 2;
  }
  ExpectRoutedAsByReference({16, 2}, logits);
}

TEST(CudaRouteTokens, TokensThatPadAStepReadNoExpertsOfTheirOwn) {
  constexpr int kTokens = 16;
  constexpr int kReal = 9;
  constexpr int kPaddingSlot = 12;
  const Router router{64, 4, {.normalizes = true}};
  const std::vector<float> logits = RandomFloats(kTokens * 64, 7);
  std::vector<int32_t> token_seq(kTokens), seq_slot(kTokens, kPaddingSlot);
  std::iota(token_seq.begin(), token_seq.end(), 0);
  for (int i = 0; i < kReal; ++i) seq_slot[i] = kPaddingSlot - 1 - i;
  for (CudaUnderTest& cuda : AllSchedules(true)) {
    const Routing real =
        Route(*cuda.backend, router, {logits.begin(), logits.begin() + kReal * 64});
    const ExpertRouting padding = {
        .token_seq = token_seq.data(), .seq_slot = seq_slot.data(), .padding_slot = kPaddingSlot};
    const Routing padded = Route(*cuda.backend, router, logits, padding);
    EXPECT_EQ(std::set<int32_t>(padded.experts.begin(), padded.experts.end()),
              std::set<int32_t>(real.experts.begin(), real.experts.end()));
    for (int i = 0; i < kTokens * router.k; ++i) {
      const int same = i < kReal * router.k ? i : i % router.k;
      EXPECT_EQ(padded.experts[i], real.experts[same]);
      EXPECT_EQ(padded.weights[i], real.weights[same]);
    }
  }
}

TEST(CudaRouteTokens, TiesGoToTheLowestId) {
  CudaUnderTest cuda;
  const auto experts = [&](int k, const RouterOptions& options, std::vector<float> logits) {
    const Router router{static_cast<int>(logits.size()), k, options};
    return Route(*cuda.backend, router, logits).experts;
  };
  EXPECT_EQ(experts(2, {}, {1, 2, 2, 2, 0}), std::vector<int32_t>({1, 2}));
  EXPECT_EQ(experts(3, {}, {0, -0.0F, 0, -0.0F, 0}), std::vector<int32_t>({0, 1, 2}));
  const float low = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(experts(3, {}, {low, low, 1, low, low}), std::vector<int32_t>({0, 1, 2}));
  EXPECT_EQ(experts(2, {.num_groups = 3, .num_chosen_groups = 1}, {1, 5, 0, 5, 5, 5}),
            std::vector<int32_t>({0, 1}));
  EXPECT_EQ(experts(5, {}, {1, 2, 2, 2, 0}), std::vector<int32_t>({0, 1, 2, 3, 4}));
}

TEST(CudaRouteTokens, ANanMakesEveryWeightOfTheTokenNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CudaUnderTest cuda;
  const auto expect_nan = [](const Routing& routing) {
    for (const float weight : routing.weights) EXPECT_TRUE(std::isnan(weight));
    for (const int32_t expert : routing.experts) EXPECT_TRUE(expert >= 0 && expert < 6) << expert;
    EXPECT_LT(routing.experts[0], routing.experts[1]);
  };
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
    for (const int groups : {1, 3}) {
      Router router{6, 2, {.scoring = scoring, .normalizes = true, .num_groups = groups}};
      expect_nan(Route(*cuda.backend, router, {nan, 2, nan, 1, nan, 1}));
      expect_nan(Route(*cuda.backend, router, {0, 2, 3, 1, 2, nan}));
      expect_nan(Route(*cuda.backend, router, {nan, nan, nan, nan, nan, nan}));
      router.bias = {0, nan, 0, 0, 0, 0};
      expect_nan(Route(*cuda.backend, router, {0, 2, 3, 1, 4, 0}));
    }
  }
}

}  // namespace
}  // namespace bulkhead
