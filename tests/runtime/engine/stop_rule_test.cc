#include "runtime/engine/stop_rule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

StoppingParams Params() {
  StoppingParams params;
  params.max_tokens = 5;
  params.stop_token_ids = {7, 3, 7};
  return params;
}

TEST(StopRuleTest, EosAndStopTokensAreToldApart) {
  const StopRule rule(Params(), {2, 3}, 100);
  EXPECT_EQ(rule.Check(2, 1, 10)->reason, FinishReason::kEos);
  EXPECT_EQ(rule.Check(3, 1, 10)->reason, FinishReason::kEos);
  EXPECT_EQ(rule.Check(7, 1, 10)->reason, FinishReason::kStopToken);
  EXPECT_EQ(rule.Check(7, 1, 10)->stop_token_id, 7);
  EXPECT_FALSE(rule.Check(8, 1, 10).has_value());
  EXPECT_THAT(rule.stop_ids(), testing::ElementsAre(2, 3, 7));
}

TEST(StopRuleTest, IgnoredEosIsAnOrdinaryToken) {
  StoppingParams params = Params();
  params.ignore_eos = true;
  const StopRule rule(params, {2}, 100);
  EXPECT_FALSE(rule.Check(2, 1, 10).has_value());
  EXPECT_THAT(rule.stop_ids(), testing::ElementsAre(3, 7));
}

TEST(StopRuleTest, StoppingTokenWinsOverALimitAndMaxTokensOverTheLength) {
  const StopRule rule(Params(), {2}, 10);
  EXPECT_EQ(rule.Check(2, 5, 10)->reason, FinishReason::kEos);
  EXPECT_EQ(rule.Check(8, 5, 10)->reason, FinishReason::kMaxTokens);
  EXPECT_EQ(rule.Check(8, 4, 10)->reason, FinishReason::kModelLength);
  EXPECT_FALSE(rule.Check(8, 4, 9).has_value());
}

TEST(StopRuleTest, NothingStopsBeforeMinTokens) {
  StoppingParams params = Params();
  params.min_tokens = 2;
  const StopRule rule(params, {2}, 100);
  EXPECT_FALSE(rule.Check(2, 2, 10).has_value());
  EXPECT_TRUE(rule.Check(2, 3, 10).has_value());
}

}  // namespace
}  // namespace bulkhead
