// Drafts by a draft model: its steps, what it is given, and what it may cost.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SchedulerLimits DraftLimits(int tokens = 4) {
  SchedulerLimits limits = ToyLimits();  // blocks of 4 tokens
  limits.max_num_batched_tokens = 32;
  limits.drafts = {.num_speculative_tokens = tokens, .draft_model_len = limits.max_model_len};
  return limits;
}

std::vector<TokenId> Want(const Request& request, const SchedulerLimits& limits) {
  return ToyGenerate(request, {kToyEos}, limits.max_model_len).tokens;
}

std::vector<int> NumTokens(const internal::StepPlan& plan) {
  return {plan.num_tokens().begin(), plan.num_tokens().end()};
}

// Runs to the next step of the model; returns the draft model's before it.
std::vector<internal::StepPlan> DraftsBefore(ToyLoop& loop) {
  std::vector<internal::StepPlan> drafts;
  while (true) {
    loop.Step();
    if (!loop.plan().draft() || testing::Test::HasFailure()) return drafts;
    drafts.push_back(loop.plan());
  }
}

TEST(SchedulerDraftModelTest, ItDraftsTokenByTokenBeforeAStepThatVerifies) {
  ToyLoop loop(DraftLimits());
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const Request request = ToyRequest(6, 40, 3);
  const SequenceId id = *loop.Submit(request);
  EXPECT_THAT(DraftsBefore(loop), IsEmpty());  // the prompt
  // The first one is also given the prompt; the rate of acceptance is not known yet.
  std::vector<internal::StepPlan> drafts = DraftsBefore(loop);
  ASSERT_EQ(drafts.size(), 1);
  EXPECT_THAT(NumTokens(drafts[0]), ElementsAre(7));
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(2));
  for (int i = 0; i < 5; ++i) drafts = DraftsBefore(loop);
  // What was accepted whole leaves two that it has not seen.
  ASSERT_EQ(drafts.size(), 4);
  EXPECT_THAT(NumTokens(drafts[0]), ElementsAre(2));
  EXPECT_THAT(NumTokens(drafts[1]), ElementsAre(1));
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(5));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(request, ToyLimits()));
  const DraftTotals totals = loop.scheduler().load().drafts;
  EXPECT_EQ(totals.accepted_tokens, totals.draft_tokens);
  EXPECT_GT(totals.accepted_by_position[3], 3);
}

TEST(SchedulerDraftModelTest, ALongPromptIsGivenPieceByPieceWhileItsSequenceDecodes) {
  SchedulerLimits limits = DraftLimits();
  limits.max_model_len = 256;
  limits.max_num_batched_tokens = 128;
  limits.drafts.draft_model_len = 256;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  const SequenceId id = *loop.Submit(ToyRequest(60, 40));
  loop.Step();
  for (int i = 0; i < 3; ++i) {
    const std::vector<internal::StepPlan> drafts = DraftsBefore(loop);
    ASSERT_EQ(drafts.size(), 1);
    EXPECT_THAT(NumTokens(drafts[0]), ElementsAre(UnseenTokens(limits)));
    EXPECT_EQ(drafts[0].num_logits(0), 0);
    EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(1));
  }
  const std::vector<internal::StepPlan> drafts = DraftsBefore(loop);
  EXPECT_THAT(NumTokens(drafts[0]), ElementsAre(60 + 4 - 3 * UnseenTokens(limits)));
  EXPECT_THAT(NumTokens(loop.plan()), ElementsAre(2));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(60, 40), limits));
}

TEST(SchedulerDraftModelTest, CachedBlocksAreGivenToItOnce) {
  SchedulerLimits limits = DraftLimits();
  limits.prefix_caching = true;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  // Ends with its first token: the draft model sees nothing of it.
  const auto request = [](int max_tokens) { return ToyRequest(16, max_tokens, 9); };
  ASSERT_TRUE(loop.Submit(request(1)).ok());
  loop.RunToEnd();
  EXPECT_EQ(loop.runner().draft_steps(), 0);
  for (const int unseen : {UnseenTokens(limits), 1, 1}) {  // of 17
    const SequenceId id = *loop.Submit(request(20));
    loop.Step();
    EXPECT_EQ(loop.plan().start_position(0), 12);
    EXPECT_THAT(NumTokens(DraftsBefore(loop)[0]), ElementsAre(unseen));
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(id), Want(request(20), limits));
  }
  const DraftTotals totals = loop.scheduler().load().drafts;
  EXPECT_EQ(totals.accepted_tokens, totals.draft_tokens);
}

TEST(SchedulerDraftModelTest, SequencesThatShareABlockDoNotWriteItInOneStep) {
  SchedulerLimits limits = DraftLimits();
  limits.prefix_caching = true;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.Submit(ToyRequest(16, 1)).ok());
  loop.RunToEnd();
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(*loop.Submit(ToyRequest(16, 40)));
  loop.RunToEnd();  // ToyRunner sees it
  for (const SequenceId id : ids) EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(16, 40), limits));
}

// Of two equal sequences the first, of few tokens, has no drafts, and caches its blocks first.
TEST(SchedulerDraftModelTest, StatesBeginAnewWhereASequenceTakesABlockThatWasNotDrafted) {
  SchedulerLimits limits = DraftLimits();
  limits.prefix_caching = true;
  limits.max_model_len = 256;
  limits.max_num_batched_tokens = 1024;
  limits.num_kv_blocks = 200;
  limits.drafts.draft_model_len = 256;
  limits.drafts.draft_state_tokens = 8;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kAll);
  ASSERT_TRUE(loop.Submit(ToyRequest(200, 12)).ok());
  const SequenceId id = *loop.Submit(ToyRequest(200, 50));
  int starts = 0;
  while (!loop.scheduler().idle()) {
    for (const internal::StepPlan& draft : DraftsBefore(loop)) {
      EXPECT_EQ(draft.slot_size(), 1);
      starts += draft.start_position(0) == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(loop.TokensOf(id), Want(ToyRequest(200, 50), limits));
}

TEST(SchedulerDraftModelTest, NothingIsDraftedBehindAnEndOrItsLastPosition) {
  SchedulerLimits limits = DraftLimits(8);
  limits.drafts.draft_model_len = 20;
  ToyLoop loop(limits);
  loop.runner().SetDraftErrors(DraftErrors::kNone);
  Request request = ToyRequest(4, 12);
  const std::vector<TokenId> tokens = Want(request, limits);
  request.stopping.stop_token_ids = {tokens[9]};
  const SequenceId id = *loop.Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(request, limits));
  const DraftTotals totals = loop.scheduler().load().drafts;
  EXPECT_LE(totals.draft_tokens, 9);
  ASSERT_TRUE(loop.Submit(ToyRequest(4, 50)).ok());
  loop.RunToEnd();  // ToyRunner sees positions
  EXPECT_GT(loop.scheduler().load().drafts.draft_tokens, totals.draft_tokens);
  EXPECT_LE(loop.scheduler().load().drafts.draft_tokens, totals.draft_tokens + 17);
}

TEST(SchedulerDraftModelTest, FormsAndPenaltiesSeeTheDraftsBefore) {
  for (const uint32_t choice : {2u, 5u, 7u, 31u, 1003u}) {
    ToyLoop loop(DraftLimits());
    loop.runner().SetDraftErrors(DraftErrors::kNone);
    Request request = ToyRequest(9, 50, 1);
    request.logits = ToyLogitsParams(choice);
    const SequenceId id = *loop.Submit(request);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(id), Want(request, ToyLimits()));
    const DraftTotals totals = loop.scheduler().load().drafts;
    EXPECT_EQ(totals.accepted_tokens, totals.draft_tokens) << choice;
    EXPECT_GT(totals.accepted_tokens, 30) << choice;
  }
}

// Seconds of a run of `count` sequences at once, with a step's as given, and without drafts.
struct Times {
  double with = 0;
  double without = 0;
};
Times TimesOf(int count, DraftErrors errors, const std::function<double(int tokens)>& draft_s) {
  const auto step_s = [](int tokens) { return 1 + 0.05 * tokens; };
  SchedulerLimits limits = DraftLimits(5);
  limits.max_model_len = 2000;
  limits.max_num_batched_tokens = 256;
  limits.num_kv_blocks = 2000;
  limits.drafts.draft_model_len = 2000;
  Times times;
  for (const bool drafts : {false, true}) {
    if (!drafts) limits.drafts = {};
    if (drafts) limits.drafts = {.num_speculative_tokens = 5, .draft_model_len = 2000};
    ToyLoop loop(limits);
    loop.runner().SetDraftErrors(errors);
    for (int i = 0; i < 8 * count; ++i) EXPECT_TRUE(loop.Submit(ToyRequest(100, 1800, i)).ok());
    loop.scheduler().SetMaxNumSeqs(count);
    while (!loop.scheduler().idle() && !testing::Test::HasFailure()) {
      loop.PlanAndRun();
      const int tokens = loop.plan().token_ids_size();
      const double seconds = loop.plan().draft() ? draft_s(tokens) : step_s(tokens);
      (drafts ? times.with : times.without) += seconds;
      loop.scheduler().RecordStepTime(seconds);
      loop.CommitOldest();
    }
  }
  return times;
}

TEST(SchedulerDraftModelTest, AGoodDraftModelSavesTimeAndAUselessOneCostsLittle) {
  const auto small_s = [](int tokens) { return 0.2 + 0.01 * tokens; };
  const auto large_s = [](int tokens) { return 1 + 0.05 * tokens; };
  for (const int count : {1, 4}) {
    const Times good = TimesOf(count, DraftErrors::kNone, small_s);
    EXPECT_LT(good.with, 0.5 * good.without) << count;
    const Times some = TimesOf(count, DraftErrors::kSome, small_s);
    EXPECT_LT(some.with, 0.9 * some.without) << count;
    for (const Times& useless :
         {TimesOf(count, DraftErrors::kAll, small_s), TimesOf(count, DraftErrors::kAll, large_s),
          TimesOf(count, DraftErrors::kNone, large_s)}) {
      EXPECT_LT(useless.with, 1.03 * useless.without + 150) << count;
      EXPECT_GT(useless.with, 1.001 * useless.without) << count;  // it is tried now and then
    }
  }
}

TEST(SchedulerDraftModelTest, AStepThatWasHeldUpDoesNotEndItsDrafts) {
  for (const bool mtp : {false, true}) {
    SchedulerLimits limits = DraftLimits(2);
    limits.max_model_len = 5000;
    limits.num_kv_blocks = 2000;
    limits.drafts = {.num_speculative_tokens = 2, .draft_model_len = 5000, .mtp = mtp};
    ToyLoop loop(limits);
    loop.runner().SetDraftErrors(DraftErrors::kNone);
    Request request = ToyRequest(10, 4900);
    request.stopping.ignore_eos = true;
    ASSERT_TRUE(loop.Submit(request).ok());
    // Until `count` steps that draft are paid for; returns how many of the model's there were.
    const auto run = [&](int count, double draft_s) {
      int model_steps = 0;
      bool behind_draft = false;
      while (count > 0 && !loop.scheduler().idle() && !testing::Test::HasFailure()) {
        loop.PlanAndRun();
        const bool drafts = loop.plan().draft();
        // The MTP layer's step behind the model's is not paid for.
        const bool is_paid = drafts && (!mtp || std::exchange(behind_draft, true));
        if (!drafts) behind_draft = false;
        model_steps += drafts ? 0 : 1;
        count -= is_paid ? 1 : 0;
        loop.scheduler().RecordStepTime(!drafts ? 1 : is_paid ? draft_s : 0.1);
        loop.CommitOldest();
      }
      return model_steps;
    };
    run(200, 0.1);
    run(1, 3600);
    EXPECT_LT(run(20, 0.1), 100) << mtp;
  }
}

}  // namespace
}  // namespace bulkhead
