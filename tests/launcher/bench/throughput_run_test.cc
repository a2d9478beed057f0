#include "launcher/bench/throughput_run.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ThroughputRunTest, DecodeCountsOnlyWhileAllGenerate) {
  // Until second 2 the first one decodes alone, from second 4 on the second one does.
  const ThroughputRun run = RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 5, 6}}}, 20);
  EXPECT_DOUBLE_EQ(run.prefill_tokens_per_s, 10);
  EXPECT_DOUBLE_EQ(*run.decode_tokens_per_s, 2);  // four tokens in (2, 4]
  EXPECT_DOUBLE_EQ(run.total_tokens_per_s, 29.0 / 6);
}

TEST(ThroughputRunTest, WhereSequencesNeverAllRanTogetherTheRateIsThatOfTheWholeRun) {
  // Two tokens behind the first ones, in the time from second 1 to 4.
  EXPECT_DOUBLE_EQ(*RunOf({{{1, 2}}, {{3, 4}}}, 20).decode_tokens_per_s, 2.0 / 3);
}

TEST(ThroughputRunTest, OnlyWhereNoTokenFollowsTheFirstOnesThereIsNoDecodeRate) {
  EXPECT_FALSE(RunOf({{{1}}, {{1}}}, 20).decode_tokens_per_s.has_value());
  EXPECT_EQ(RunOf({}, 20).total_tokens_per_s, 0);
}

TEST(ThroughputRunTest, TheLogTellsNoDecodeRateThatWasNotMeasured) {
  const ThroughputCase apart = {2, 10, 1, {RunOf({{{1}}, {{3}}}, 20)}};
  EXPECT_EQ(
      LastRunText(apart),
      "batch 2, 10 -> 1: prefill 6.7 tokens/s, decode - (no token behind the first ones) (last "
      "of 1 runs)");
  const ThroughputCase together = {2, 10, 4, {RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 5, 6}}}, 20)}};
  EXPECT_THAT(LastRunText(together), HasSubstr("decode 2.0 tokens/s"));
}

TEST(ThroughputRunTest, LatencyIsOfFirstTokensAndOfStepsWhileAllGenerate) {
  // The gap from 1 to 2 is before the second sequence has begun, that from 4 to 7 behind the first.
  const ThroughputRun run = RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 7}}}, 20);
  EXPECT_THAT(run.first_token_s, ElementsAre(1, 2));
  EXPECT_THAT(run.step_s, ElementsAre(1, 1, 1, 1));
}

}  // namespace
}  // namespace bulkhead
