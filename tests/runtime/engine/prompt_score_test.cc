#include "runtime/engine/prompt_score.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(PromptScoreTest, TakesTheNextTokensProbabilityFromEachRow) {
  PromptScore score({2, 0, 1});
  const float rows[3][3] = {{0, 0, 0}, {1, 3, 2}, {9, 9, 9}};  // the last one has no next token
  ASSERT_TRUE(score.OnRows(0, 1, 3, rows[0]).ok());
  ASSERT_TRUE(score.OnRows(1, 2, 3, rows[1]).ok());
  EXPECT_NEAR(score.logprobs()[0], -std::log(3.0), 1e-6);
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_NEAR(score.logprobs()[1], 3 - std::log(sum), 1e-6);
  EXPECT_NEAR(score.nll(), std::log(3.0) + std::log(sum) - 3, 1e-6);
}

TEST(PromptScoreTest, OneTokenHasNothingToPredict) {
  PromptScore score({5});
  const float row[8] = {};
  ASSERT_TRUE(score.OnRows(0, 1, 8, row).ok());
  EXPECT_TRUE(score.logprobs().empty());
  EXPECT_EQ(score.nll(), 0);
}

TEST(PromptScoreTest, HugeLogitsDoNotOverflowAndInfiniteOnesAreAnError) {
  PromptScore score({0, 1});
  const float huge[2] = {3e38F, 3e38F};
  ASSERT_TRUE(score.OnRows(0, 1, 2, huge).ok());
  EXPECT_NEAR(score.nll(), std::log(2.0), 1e-6);
  const float infinite[2] = {std::numeric_limits<float>::infinity(), 0};
  EXPECT_EQ(score.OnRows(0, 1, 2, infinite).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace bulkhead
