// Prompt lookup where steps are planned ahead.
#include <algorithm>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

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

TEST(SchedulerLookupTest, RightDraftsBehindTheEndCountAsDraftedAndNotAsAccepted) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_batched_tokens = 64;
  limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
  int behind_the_end = 0;
  for (int answer = 8; answer < 12; ++answer) {
    KvBlockPool pool(limits.num_kv_blocks);
    Scheduler scheduler(limits, {kToyEos}, pool);
    Request request = ToyRequest(16, 20);
    request.stopping.ignore_eos = false;
    for (int i = 0; i < 16; ++i) request.prompt[i] = i == answer ? kToyEos : 10 + i;
    const std::vector<TokenId> prompt = request.prompt;  // what is generated is the same
    ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
    uint64_t drafted = 0;
    uint64_t accepted = 0;
    for (int next = 0; !scheduler.idle();) {
      const std::optional<Step> step = scheduler.PlanStep();
      ASSERT_TRUE(step.has_value());
      StepResult result;
      const auto num_samples = static_cast<int>(step->samples.size());
      for (int i = 0; i < num_samples; ++i) {
        result.samples.emplace_back(GeneratedToken{prompt[next + i], {}, {}});
      }
      const auto emitted = static_cast<int>(scheduler.Commit(std::move(result)).size());
      next += emitted;
      drafted += num_samples - 1;
      accepted += std::min(emitted, num_samples - 1);
      behind_the_end += std::max(0, num_samples - 1 - emitted);
    }
    EXPECT_EQ(scheduler.load().drafts.draft_tokens, drafted);
    EXPECT_EQ(scheduler.load().drafts.accepted_tokens, accepted);
  }
  EXPECT_GT(behind_the_end, 0);
}

}  // namespace
}  // namespace bulkhead
