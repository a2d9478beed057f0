#include "runtime/engine/scheduler.h"

#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> Lengths(const internal::StepPlan& plan) {
  return {plan.num_tokens().begin(), plan.num_tokens().end()};
}

TEST(SchedulerTest, PromptIsChunkedAndThenDecodesOneTokenAStep) {
  ToyLoop loop(ToyLimits());
  const SequenceId id = *loop.scheduler().Submit(ToyRequest(20, 3));
  EXPECT_THAT(loop.Step(), IsEmpty());
  EXPECT_THAT(Lengths(loop.plan()), ElementsAre(16));
  EXPECT_EQ(loop.plan().num_logits(0), 0);
  EXPECT_EQ(loop.Step().size(), 1);
  EXPECT_THAT(Lengths(loop.plan()), ElementsAre(4));
  EXPECT_EQ(loop.plan().start_position(0), 16);
  EXPECT_EQ(loop.plan().num_logits(0), 1);
  loop.Step();
  EXPECT_THAT(Lengths(loop.plan()), ElementsAre(1));
  loop.Step();
  EXPECT_EQ(loop.TokensOf(id).size(), 3);
  EXPECT_EQ(loop.EndOf(id)->finish->reason, FinishReason::kMaxTokens);
  EXPECT_EQ(loop.pool().num_free(), 64);
}

TEST(SchedulerTest, DecodesComeFirstAndPromptsShareWhatIsLeft) {
  ToyLoop loop(ToyLimits());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 10, 1)).ok());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 10, 2)).ok());
  loop.Step();
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(30, 10, 3)).ok());
  loop.Step();
  EXPECT_THAT(Lengths(loop.plan()), ElementsAre(1, 1, 14));
}

TEST(SchedulerTest, ReserveAdmitsOnlyWhatFitsToItsEnd) {
  SchedulerLimits limits = ToyLimits();
  limits.num_kv_blocks = 10;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 1)).ok());  // 6 blocks in the worst case
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 2)).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 1);
  EXPECT_EQ(loop.scheduler().load().num_blocks_used, 6);
  loop.RunToEnd();
  EXPECT_EQ(loop.scheduler().load().preemptions_total, 0);
}

TEST(SchedulerTest, BlocksReachTheTablesWithTheStepThatWritesThem) {
  ToyLoop loop(ToyLimits());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(3, 10)).ok());
  std::vector<int> changes;
  for (int step = 0; step < 6; ++step) {
    loop.Step();
    changes.push_back(loop.plan().table_slot_size());
  }
  // Positions 0-2, 3, 4, 5, 6, 7: a block of 4 is entered at 0 and at 4.
  EXPECT_THAT(changes, ElementsAre(1, 0, 1, 0, 0, 0));
}

TEST(SchedulerTest, RequestThatCanNeverFitIsRefusedWithNumbers) {
  SchedulerLimits limits = ToyLimits();
  limits.num_kv_blocks = 4;
  ToyLoop loop(limits);
  const absl::Status refused = loop.scheduler().Submit(ToyRequest(10, 30)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("10 KV blocks"));
  EXPECT_EQ(ReasonOf(refused), "KV_BUDGET");
  const google::rpc::ErrorInfo info = ErrorInfoOf(refused);
  EXPECT_EQ(info.metadata().at("needed_blocks"), "10");
  EXPECT_EQ(info.metadata().at("rank_min_blocks"), "4");
  EXPECT_EQ(info.metadata().at("block_size"), "4");
  EXPECT_TRUE(loop.scheduler().Submit(ToyRequest(10, 6)).ok());
  loop.RunToEnd();
}

TEST(SchedulerTest, FullQueueRefusesUntilSomethingEnds) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  limits.max_num_queued_reqs = 1;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 2, 1)).ok());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 2, 2)).ok());
  const absl::Status refused = loop.scheduler().Submit(ToyRequest(2, 2, 3)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const google::rpc::ErrorInfo info = ErrorInfoOf(refused);
  EXPECT_EQ(info.reason(), "QUEUE_FULL");
  EXPECT_EQ(info.metadata().at("waiting"), "2");
  EXPECT_EQ(info.metadata().at("limit"), "1");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  loop.Step();
  loop.Step();
  EXPECT_TRUE(loop.scheduler().Submit(ToyRequest(2, 2, 4)).ok());
  loop.RunToEnd();
}

TEST(SchedulerTest, FinishFreesSlotAndBlocksAtOnce) {
  ToyLoop loop(ToyLimits());
  const SequenceId running = *loop.scheduler().Submit(ToyRequest(4, 20, 1));
  loop.Step();
  const SequenceId waiting = *loop.scheduler().Submit(ToyRequest(4, 20, 2));
  loop.scheduler().Finish(running);
  loop.scheduler().Finish(waiting);
  loop.scheduler().Finish(waiting);
  EXPECT_TRUE(loop.scheduler().idle());
  EXPECT_EQ(loop.pool().num_free(), 64);
}

TEST(SchedulerTest, WithDepthTwoAFinishWaitsForTheStepInFlight) {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  ToyLoop loop(limits);
  const SequenceId id = *loop.scheduler().Submit(ToyRequest(4, 20));
  loop.Step();  // plans two steps, commits one
  EXPECT_EQ(loop.plan().token_ids(0), kLastSampled);
  loop.scheduler().Finish(id);
  EXPECT_EQ(loop.pool().num_free(), 58);
  EXPECT_FALSE(loop.scheduler().idle());
  loop.Step();
  EXPECT_TRUE(loop.scheduler().idle());
  EXPECT_EQ(loop.pool().num_free(), 64);
  EXPECT_EQ(loop.TokensOf(id).size(), 1);  // the surplus token is dropped
}

TEST(SchedulerTest, NoStepIsPlannedBeyondMaxTokens) {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 1)).ok());
  ASSERT_TRUE(loop.scheduler().PlanStep().has_value());
  EXPECT_FALSE(loop.scheduler().PlanStep().has_value());
}

TEST(SchedulerTest, StepsOfOneTokenEachAloneArePaddedWhereTheyAre) {
  SchedulerLimits limits = ToyLimits();
  limits.pads_decodes = true;
  ToyLoop loop(limits);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 5, i)).ok());
  loop.Step();
  EXPECT_EQ(loop.plan().padded_tokens(), 6);  // prompts
  loop.Step();
  EXPECT_EQ(loop.plan().token_ids_size(), 3);
  EXPECT_EQ(loop.plan().padded_tokens(), 4);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 5, 3)).ok());
  loop.Step();
  EXPECT_EQ(loop.plan().padded_tokens(), 5);
}

TEST(SchedulerTest, MoreSequencesThanTokensOfAStepTakeTurns) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 3;
  ToyLoop loop(limits);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(*loop.scheduler().Submit(ToyRequest(1, 12, i)));
  loop.RunToEnd();
  for (const SequenceId id : ids) EXPECT_EQ(loop.TokensOf(id).size(), 12);
}

TEST(SchedulerTest, SequenceEndsExactlyAtTheModelsLength) {
  ToyLoop loop(ToyLimits());
  const SequenceId id = *loop.scheduler().Submit(ToyRequest(60, 100));
  const SequenceId last = *loop.scheduler().Submit(ToyRequest(63, 100, 1));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id).size(), 4);
  EXPECT_EQ(loop.EndOf(id)->finish->reason, FinishReason::kModelLength);
  EXPECT_EQ(loop.TokensOf(last).size(), 1);
  EXPECT_EQ(loop.scheduler().Submit(ToyRequest(64, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SchedulerTest, HigherPriorityIsAdmittedFirst) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  limits.policy = SchedulingPolicy::kPriority;
  ToyLoop loop(limits);
  Request urgent = ToyRequest(30, 2, 2);
  urgent.priority = 5;
  const SequenceId low = *loop.scheduler().Submit(ToyRequest(2, 2, 1));
  const SequenceId high = *loop.scheduler().Submit(urgent);
  while (loop.EndOf(high) == nullptr) loop.Step();
  EXPECT_EQ(loop.EndOf(low), nullptr);
  loop.RunToEnd();
}

TEST(SchedulerTest, PriorityIsIgnoredUnderFcfs) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  ToyLoop loop(limits);
  Request urgent = ToyRequest(2, 2, 2);
  urgent.priority = 5;
  const SequenceId first = *loop.scheduler().Submit(ToyRequest(2, 2, 1));
  const SequenceId second = *loop.scheduler().Submit(urgent);
  while (loop.EndOf(first) == nullptr) loop.Step();
  EXPECT_EQ(loop.EndOf(second), nullptr);
  loop.RunToEnd();
}

TEST(SchedulerTest, EmittedTokensArePrefilledAndCount) {
  ToyLoop loop(ToyLimits());
  Request whole = ToyRequest(5, 8);
  const SequenceId id = *loop.scheduler().Submit(whole);
  loop.RunToEnd();
  const std::vector<TokenId> tokens = loop.TokensOf(id);
  Request resumed = whole;
  resumed.emitted.assign(tokens.begin(), tokens.begin() + 3);
  const SequenceId again = *loop.scheduler().Submit(resumed);
  loop.Step();
  EXPECT_THAT(Lengths(loop.plan()), ElementsAre(8));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(again), std::vector<TokenId>(tokens.begin() + 3, tokens.end()));
  resumed.emitted = tokens;
  EXPECT_EQ(loop.scheduler().Submit(resumed).status().code(), absl::StatusCode::kInvalidArgument);
  resumed = ToyRequest(5, 100);
  resumed.emitted.assign(59, 21);
  EXPECT_EQ(loop.scheduler().Submit(resumed).status().code(), absl::StatusCode::kInvalidArgument)
      << "they fill the model's length";
}

class RowsSeen final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override {
    EXPECT_EQ(vocab_size, 2);
    for (int64_t row = 0; row < rows; ++row) {
      EXPECT_EQ(logits[2 * row], static_cast<float>(first_position + row));
      if (first_position + row == 0) tokens.clear();
      tokens.push_back(static_cast<TokenId>(logits[2 * row + 1]));
    }
    return answer;
  }
  std::vector<TokenId> tokens;
  absl::Status answer;
};

TEST(SchedulerTest, PromptLogitsCoverExactlyThePrompt) {
  ToyLoop loop(ToyLimits());
  RowsSeen rows;
  Request request = ToyRequest(20, 6);
  request.prompt_logits = &rows;
  request.emitted = {3, 4, 5};  // their rows are not the prompt's
  const SequenceId id = *loop.scheduler().Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(rows.tokens, request.prompt);
  EXPECT_EQ(loop.TokensOf(id).size(), 3);
}

TEST(SchedulerTest, PromptLogitsAloneDrawNothing) {
  ToyLoop loop(ToyLimits());
  RowsSeen rows;
  Request request = ToyRequest(64, 0);
  request.prompt_logits = &rows;
  const SequenceId id = *loop.scheduler().Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(rows.tokens, request.prompt);
  EXPECT_THAT(loop.TokensOf(id), IsEmpty());
  EXPECT_EQ(loop.EndOf(id)->finish->reason, FinishReason::kMaxTokens);
}

TEST(SchedulerTest, AStepHasAsManyPromptLogitsAsRank0ReadsQuickly) {
  SchedulerLimits limits = ToyLimits();
  limits.max_model_len = 4096;
  limits.max_num_batched_tokens = 4096;
  limits.num_kv_blocks = 4096;
  ToyLoop loop(limits);
  std::vector<RowsSeen> rows(3);
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(ToyRequest(i == 0 ? 2500 : 700, 0, i));
    requests[i].prompt_logits = &rows[i];
    ASSERT_TRUE(loop.scheduler().Submit(requests[i]).ok());
  }
  const SequenceId plain = *loop.scheduler().Submit(ToyRequest(2000, 1, 4));
  int steps = 0;
  for (; !loop.scheduler().idle(); ++steps) {
    loop.Step();
    EXPECT_LE(std::accumulate(loop.plan().num_logits().begin(), loop.plan().num_logits().end(), 0),
              kPromptLogitRowsOfStep + 1);
    if (steps == 1) {
      EXPECT_NE(loop.EndOf(plain), nullptr);
    }
  }
  EXPECT_EQ(steps, 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rows[i].tokens, requests[i].prompt);
}

TEST(SchedulerTest, SinkThatCannotWriteEndsItsRequestAlone) {
  ToyLoop loop(ToyLimits());
  RowsSeen rows;
  rows.answer = absl::DataLossError("disk full");
  Request request = ToyRequest(5, 6);
  request.prompt_logits = &rows;
  const SequenceId failed = *loop.scheduler().Submit(request);
  const SequenceId other = *loop.scheduler().Submit(ToyRequest(5, 6, 1));
  loop.RunToEnd();
  EXPECT_EQ(loop.EndOf(failed)->status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(loop.TokensOf(failed), IsEmpty());
  EXPECT_EQ(loop.TokensOf(other).size(), 6);
}

TEST(SchedulerTest, RowWithoutATokenEndsItsRequestAlone) {
  KvBlockPool pool(64);
  Scheduler scheduler(ToyLimits(), {kToyEos}, pool);
  const SequenceId failed = *scheduler.Submit(ToyRequest(2, 6, 1));
  const SequenceId other = *scheduler.Submit(ToyRequest(2, 1, 2));
  ASSERT_EQ(scheduler.PlanStep()->samples.size(), 2);
  StepResult result;
  result.samples.emplace_back(absl::InternalError("not finite"));
  result.samples.emplace_back(GeneratedToken{7, {}, {}});
  const std::vector<Emission> emissions = scheduler.Commit(std::move(result));
  ASSERT_EQ(emissions.size(), 2);
  EXPECT_EQ(emissions[0].id, failed);
  EXPECT_EQ(emissions[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(emissions[1].id, other);
  EXPECT_TRUE(emissions[1].finish.has_value());
  EXPECT_TRUE(scheduler.idle());
}

TEST(SchedulerTest, StoppingIdsAreBannedBeforeMinTokens) {
  KvBlockPool pool(64);
  Scheduler scheduler(ToyLimits(), {kToyEos}, pool);
  Request request = ToyRequest(2, 6);
  request.stopping.ignore_eos = false;
  request.stopping.stop_token_ids = {9};
  request.stopping.min_tokens = 1;
  ASSERT_TRUE(scheduler.Submit(request).ok());
  EXPECT_THAT(scheduler.PlanStep()->samples[0].banned, ElementsAre(kToyEos, 9));
  StepResult result;
  result.samples.emplace_back(GeneratedToken{7, {}, {}});
  EXPECT_FALSE(scheduler.Commit(std::move(result))[0].finish.has_value());
  EXPECT_THAT(scheduler.PlanStep()->samples[0].banned, IsEmpty());
  result = {};
  result.samples.emplace_back(GeneratedToken{9, {}, {}});
  const std::vector<Emission> emissions = scheduler.Commit(std::move(result));
  EXPECT_EQ(emissions[0].finish->reason, FinishReason::kStopToken);
  EXPECT_EQ(emissions[0].finish->stop_token_id, 9);
}

TEST(SchedulerTest, StopPlanTakesTheNextNumber) {
  ToyLoop loop(ToyLimits());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 1)).ok());
  loop.RunToEnd();
  const Step stop = loop.scheduler().PlanStop();
  EXPECT_TRUE(stop.plan.stop());
  EXPECT_EQ(stop.plan.seq(), loop.plan().seq() + 1);
}

}  // namespace
}  // namespace bulkhead
