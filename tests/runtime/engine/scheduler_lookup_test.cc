// Prompt lookup where steps are planned ahead.
#include <gtest/gtest.h>

#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

TEST(SchedulerLookupTest, StepsArePlannedAheadWhereWaitingForDraftsFindsNone) {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  limits.max_model_len = 128;
  limits.max_num_batched_tokens = 64;
  limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 2, .prompt_lookup_min = 2};
  constexpr int kTokens = 40;
  // Each id is found in the prompt, which has all, and hardly two in this order.
  Request request = ToyRequest(kToyVocab, kTokens, 3);
  ToyLoop loop(limits);
  const SequenceId id = *loop.Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), ToyGenerate(request, {kToyEos}, limits.max_model_len).tokens);
  ASSERT_EQ(loop.scheduler().load().drafts.accepted_tokens, 0U);
  EXPECT_GT(loop.runner().steps_planned_ahead(), kTokens * 3 / 4);
  EXPECT_LT(loop.runner().steps_planned_ahead(), kTokens - 4);  // now and then one waits
}

}  // namespace
}  // namespace bulkhead
