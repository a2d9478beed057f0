#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/step_estimate.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

// Reading takes 40 ms, a token 1 ms beyond 40 of them.
StepTarget Target(absl::Duration itl) {
  return {.estimate = {.least_s = 0.04, .fixed_s = 0, .token_s = 0.001}, .itl = itl};
}

TEST(PrefillPaceTest, WithoutTargetOrEstimateAStepHasAllThatFits) {
  EXPECT_EQ(PrefillPace().PromptTokens(0.04, 2047), 2047);
  EXPECT_EQ(PrefillPace(Target(absl::ZeroDuration())).PromptTokens(0.04, 2047), 2047);
  const PrefillPace unknown({.estimate = {}, .itl = absl::Milliseconds(1)});
  EXPECT_EQ(unknown.PromptTokens(0.04, 2047), 2047);
}

TEST(PrefillPaceTest, AStepTakesTheTarget) {
  const PrefillPace pace(Target(absl::Milliseconds(250)));
  EXPECT_NEAR(pace.PromptTokens(0.04, 2038), 210, 1);
  EXPECT_EQ(pace.PromptTokens(0.04, 100), 100);
}

TEST(PrefillPaceTest, PromptsHaveMostOfTheTimeWhereDecodesComeNearTheTarget) {
  const PrefillPace pace(Target(absl::Milliseconds(50)));
  // 160 ms where decodes alone take 40, 800 where they take 200.
  EXPECT_NEAR(pace.PromptTokens(0.04, 2000), 120, 1);
  EXPECT_NEAR(pace.PromptTokens(0.2, 2000), 600, 1);
}

TEST(PrefillPaceTest, SomePromptTokensAreAlwaysComputed) {
  StepTarget target = Target(absl::Milliseconds(50));
  target.estimate.token_s = 1;
  const PrefillPace pace(target);
  EXPECT_EQ(pace.PromptTokens(0.04, 2000), 64);
  EXPECT_EQ(pace.PromptTokens(0.04, 5), 5);
}

TEST(PrefillPaceTest, WhatStepsTakeCorrectsTheEstimate) {
  for (const double decode_s : {0.04, 0.2}) {  // below and above a quarter of the target
    PrefillPace slow(Target(absl::Milliseconds(250)));
    PrefillPace fast(Target(absl::Milliseconds(250)));
    const double prompt_s = decode_s < 0.1 ? 0.21 : 0.6;
    for (int step = 0; step < 100; ++step) {
      const int tokens = slow.PromptTokens(decode_s, 2000);
      slow.Record(decode_s, tokens, decode_s + 0.001 * 1.5 * tokens);
      fast.Record(decode_s, 240, decode_s + 0.12);
    }
    EXPECT_NEAR(slow.PromptTokens(decode_s, 2000), prompt_s / 0.0015, 2);
    EXPECT_NEAR(fast.PromptTokens(decode_s, 2000), prompt_s / 0.0005, 2);
    // One step that was held up for a minute halves it at the most.
    const int before = fast.PromptTokens(decode_s, 2000);
    fast.Record(decode_s, 240, 60);
    EXPECT_GT(fast.PromptTokens(decode_s, 2000), before / 2);
  }
}

SchedulerLimits PaceLimits() {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_batched_tokens = 400;
  limits.max_model_len = 1000;
  limits.num_kv_blocks = 500;
  return limits;
}

TEST(PrefillPaceTest, ALongPromptIsComputedInSmallChunksWhileAnotherSequenceDecodes) {
  ToyLoop loop(PaceLimits());
  loop.scheduler().SetStepTarget(Target(absl::Milliseconds(101)));
  Request answer = ToyRequest(4, 100, 1);
  answer.stopping.ignore_eos = true;
  ASSERT_TRUE(loop.Submit(answer).ok());
  loop.Step();
  ASSERT_TRUE(loop.Submit(ToyRequest(900, 2, 2)).ok());
  int most = 0;
  int steps = 0;
  for (; !loop.scheduler().idle() && loop.scheduler().load().prompt_tokens_total < 904; ++steps) {
    loop.PlanAndRun();
    const int tokens = loop.plan().token_ids_size();
    most = std::max(most, tokens);
    loop.scheduler().RecordStepTime(0.001 * tokens);
    loop.CommitOldest();
  }
  // 160 ms, four times what decoding takes alone by the estimate.
  EXPECT_NEAR(most, 121, 30);
  EXPECT_NEAR(steps, 7, 2);
  loop.RunToEnd();
}

TEST(PrefillPaceTest, WhereNothingDecodesChunksAreWhole) {
  ToyLoop loop(PaceLimits());
  loop.scheduler().SetStepTarget(Target(absl::Milliseconds(50)));
  ASSERT_TRUE(loop.Submit(ToyRequest(900, 2, 2)).ok());
  loop.Step();
  EXPECT_EQ(loop.plan().token_ids_size(), 400);
  loop.RunToEnd();
}

}  // namespace
}  // namespace bulkhead
