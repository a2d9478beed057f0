// Drafts by the model's MTP layer: its steps behind those of the model, and what it goes on from.
// The toy checks that every hidden state is there, and that no position before it is missing.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;

SchedulerLimits MtpLimits(int tokens = 3) {
  SchedulerLimits limits = ToyLimits();  // blocks of 4 tokens
  limits.max_num_batched_tokens = 32;
  limits.drafts = {
      .num_speculative_tokens = tokens, .draft_model_len = limits.max_model_len, .mtp = true};
  return limits;
}

std::vector<TokenId> Want(const Request& request) {
  return ToyGenerate(request, {kToyEos}, ToyLimits().max_model_len).tokens;
}

std::vector<int> NumTokens(const internal::StepPlan& plan) {
  return {plan.num_tokens().begin(), plan.num_tokens().end()};
}

std::vector<int> Starts(const internal::StepPlan& plan) {
  return {plan.start_position().begin(), plan.start_position().end()};
}

void ExpectAllAccepted(const Scheduler& scheduler, uint64_t least) {
  const DraftTotals totals = scheduler.load().drafts;
  EXPECT_EQ(totals.accepted_tokens, totals.draft_tokens);
  EXPECT_GT(totals.accepted_tokens, least);
}

TEST(SchedulerMtpTest, AStepOfTheLayerFollowsEachOfTheModelWithItsRowsAndTheTokensBehindThem) {
  ToyLoop loop(MtpLimits(1));
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const Request request = ToyRequest(6, 20, 3);
  const SequenceId id = *loop.Submit(request);
  loop.Step();
  EXPECT_FALSE(loop.plan().draft());
  loop.Step();
  EXPECT_TRUE(loop.plan().draft());
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(6));
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(0));
  const std::vector<TokenId> want = Want(request);
  EXPECT_EQ(loop.plan().token_ids(0), request.prompt[1]);
  EXPECT_EQ(loop.plan().token_ids(5), want[0]);
  EXPECT_EQ(loop.plan().num_logits(0), 1);
  loop.Step();  // verifies a draft
  EXPECT_FALSE(loop.plan().draft());
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(2));
  loop.Step();
  EXPECT_TRUE(loop.plan().draft());
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(2));  // both were right
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(6));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), want);
  ExpectAllAccepted(loop.scheduler(), 5);
}

TEST(SchedulerMtpTest, FurtherDraftsGoOnFromItsOwnStatesAndAreComputedAgainFromTheModels) {
  ToyLoop loop(MtpLimits());
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const SequenceId id = *loop.Submit(ToyRequest(5, 60));
  for (int i = 0; i < 30; ++i) loop.Step();
  while (loop.plan().draft()) loop.Step();
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(4));
  const int begin = loop.plan().start_position(0);
  loop.Step();
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(4));
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(begin));
  for (const int more : {4, 5}) {
    loop.Step();
    EXPECT_TRUE(loop.plan().draft());
    EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(1));
    EXPECT_THAT(Starts(loop.plan()), ElementsAre(begin + more));
  }
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(5, 60)));
  ExpectAllAccepted(loop.scheduler(), 30);
}

TEST(SchedulerMtpTest, ChunksOfAPromptAreFollowedOneByOne) {
  SchedulerLimits limits = MtpLimits();
  limits.max_num_batched_tokens = 8;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const SequenceId id = *loop.Submit(ToyRequest(20, 30));
  for (const int tokens : {8, 8, 4}) {
    loop.Step();
    EXPECT_FALSE(loop.plan().draft());
    EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(tokens));
    loop.Step();
    EXPECT_TRUE(loop.plan().draft());
    EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(tokens));
    EXPECT_EQ(loop.plan().num_logits(0), tokens == 4 ? 1 : 0);
  }
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(20, 30)));
  ExpectAllAccepted(loop.scheduler(), 10);
}

TEST(SchedulerMtpTest, ASequenceGoesOnFromCachedBlocksThatTheLayerHasComputed) {
  SchedulerLimits limits = MtpLimits();
  limits.prefix_caching = true;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const Request first = ToyRequest(18, 10, 9);
  ASSERT_TRUE(loop.Submit(first).ok());
  loop.RunToEnd();
  const uint64_t drafted = loop.scheduler().load().drafts.draft_tokens;
  Request second = first;
  second.prompt.resize(16);
  second.prompt.push_back(first.prompt[16] + 1);  // another continuation of the last block
  second.stopping.max_tokens = 30;
  const SequenceId id = *loop.Submit(second);
  loop.Step();
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(16));
  loop.Step();
  EXPECT_TRUE(loop.plan().draft());
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(16));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(second));
  ExpectAllAccepted(loop.scheduler(), drafted + 10);
}

TEST(SchedulerMtpTest, ABlockThatOnlyTheModelHasComputedIsComputedAgainAndSeveralAreNot) {
  SchedulerLimits limits = MtpLimits();
  limits.prefix_caching = true;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const auto run = [&](int prompt_tokens, int max_tokens) {
    const Request request = ToyRequest(prompt_tokens, max_tokens, 9);
    const SequenceId id = *loop.Submit(request);
    loop.Step();
    const int start = loop.plan().start_position(0);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(id), Want(request));
    return start;
  };
  run(6, 1);  // ends with the step that completes its block
  EXPECT_EQ(loop.runner().draft_steps(), 0);
  EXPECT_EQ(run(6, 20), 0);
  ExpectAllAccepted(loop.scheduler(), 5);
  const uint64_t drafted = loop.scheduler().load().drafts.draft_tokens;
  Request other = ToyRequest(17, 1, 5);
  ASSERT_TRUE(loop.Submit(other).ok());
  loop.RunToEnd();
  other.stopping.max_tokens = 20;
  const SequenceId id = *loop.Submit(other);
  loop.Step();
  EXPECT_EQ(loop.plan().start_position(0), 12);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(other));
  EXPECT_EQ(loop.scheduler().load().drafts.draft_tokens, drafted);
}

TEST(SchedulerMtpTest, OfEqualSequencesOneComputesABlockForAll) {
  SchedulerLimits limits = MtpLimits();
  limits.prefix_caching = true;
  limits.max_num_batched_tokens = 64;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*loop.Submit(ToyRequest(10, 40)));
  loop.Step();
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(10, 10, 10));
  loop.Step();
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(10, 2, 2));
  loop.RunToEnd();
  for (const SequenceId id : ids) EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(10, 40)));
  ExpectAllAccepted(loop.scheduler(), 30);
}

// The model's steps take this long, the layer's a tenth.
TEST(SchedulerMtpTest, WhereNothingIsAcceptedThereAreFewDraftsAndItsStepsGoOn) {
  SchedulerLimits limits = MtpLimits(1);
  limits.max_model_len = 2000;
  limits.num_kv_blocks = 1000;
  limits.drafts.draft_model_len = 2000;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kAll);
  Request request = ToyRequest(10, 1500);
  request.stopping.ignore_eos = true;
  ASSERT_TRUE(loop.Submit(request).ok());
  int model_steps = 0;
  int draft_steps = 0;
  while (!loop.scheduler().idle() && !testing::Test::HasFailure()) {
    loop.PlanAndRun();
    const bool draft = loop.plan().draft();
    (draft ? draft_steps : model_steps) += 1;
    const double tokens = loop.plan().token_ids_size();
    loop.scheduler().RecordStepTime((1 + 0.05 * tokens) * (draft ? 0.1 : 1));
    loop.CommitOldest();
  }
  EXPECT_EQ(model_steps, 1500);
  EXPECT_EQ(draft_steps, 1499);
  EXPECT_GT(loop.scheduler().load().drafts.draft_tokens, 5);
  EXPECT_LT(loop.scheduler().load().drafts.draft_tokens, 150);
}

TEST(SchedulerMtpTest, FirstDraftsCostNothingAndGoOnWhereNoTimeIsLeftForMore) {
  SchedulerLimits limits = MtpLimits(2);
  limits.max_model_len = 5000;
  limits.num_kv_blocks = 2000;
  limits.drafts.draft_model_len = 5000;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  Request request = ToyRequest(10, 4900);
  request.stopping.ignore_eos = true;
  ASSERT_TRUE(loop.Submit(request).ok());
  int further = 0;
  bool behind_draft = false;
  while (!loop.scheduler().idle() && !testing::Test::HasFailure()) {
    loop.PlanAndRun();
    const bool draft = loop.plan().draft();
    const bool is_further = draft && behind_draft;
    behind_draft = draft;
    further += is_further ? 1 : 0;
    loop.scheduler().RecordStepTime(!draft ? 1 : is_further ? 500 : 0.1);
    loop.CommitOldest();
  }
  EXPECT_GT(further, 0);
  EXPECT_LT(further, 50);
  EXPECT_GT(loop.scheduler().load().drafts.draft_tokens, 2000);
}

}  // namespace
}  // namespace bulkhead
