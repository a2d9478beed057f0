#include "runtime/engine/coordinator.h"

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

TEST_F(CoordinatorTest, RefusesUntilItServes) {
  Begin();
  const absl::Status refused =
      coordinator_->Submit(ToyRequest(3, 3), std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "STARTING");
  EXPECT_EQ(coordinator_->state(), GroupState::kStarting);
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const auto sink = Submit(ToyRequest(3, 3));
  EXPECT_TRUE(sink->WaitForEnd().status.ok());
}

TEST_F(CoordinatorTest, StreamsTokensAndTextAndSaysWhyItEnded) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const Request request = ToyRequest(5, 9);
  const auto sink = Submit(request);
  const RequestEnd end = sink->WaitForEnd();
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.reason, FinishReason::kMaxTokens);
  EXPECT_EQ(end.completion_tokens, 9);
  EXPECT_EQ(sink->tokens(), Want(request).tokens);
  EXPECT_EQ(sink->text(), LetterTokenizer::Text(sink->tokens()));
}

TEST_F(CoordinatorTest, StopStringAcrossTokensCutsTheTextAndEndsTheRequest) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request request = ToyRequest(5, 20);
  const std::vector<TokenId> tokens = Want(request).tokens;
  const std::string text = LetterTokenizer::Text(tokens);
  request.stopping.stop = {text.substr(6, 3)};
  const size_t at = text.find(request.stopping.stop[0]);
  auto sink = Submit(request);
  RequestEnd end = sink->WaitForEnd();
  EXPECT_EQ(end.reason, FinishReason::kStopString);
  EXPECT_EQ(end.stop_string, request.stopping.stop[0]);
  EXPECT_EQ(sink->text(), text.substr(0, at));
  EXPECT_EQ(sink->tokens(), std::vector<TokenId>(tokens.begin(), tokens.begin() + at + 3));
  // The same without text: the stop works, nothing is sent.
  request.wants_text = false;
  sink = Submit(request);
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kStopString);
  EXPECT_EQ(sink->text(), "");
  // Before min_tokens it is not matched.
  request.stopping.min_tokens = 20;
  sink = Submit(request);
  EXPECT_EQ(sink->WaitForEnd().completion_tokens, 20);
}

TEST_F(CoordinatorTest, StopStringOnTheLastTokenIsTheReason) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request request = ToyRequest(5, 8, 3);
  const std::string text = LetterTokenizer::Text(Want(request).tokens);
  request.stopping.stop = {text.substr(5)};
  ASSERT_EQ(text.find(request.stopping.stop[0]), 5);
  EXPECT_EQ(Submit(request)->WaitForEnd().reason, FinishReason::kStopString);
}

TEST_F(CoordinatorTest, TokenThatStopsHasNoTextUnlessAskedFor) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request request = ToyRequest(5, 20);
  const std::vector<TokenId> tokens = Want(request).tokens;
  request.stopping.stop_token_ids = {tokens[4]};
  const ToyResult want = Want(request);
  auto sink = Submit(request);
  EXPECT_EQ(sink->WaitForEnd().stop_token_id, tokens[4]);
  EXPECT_EQ(sink->tokens(), want.tokens);
  const std::string text = LetterTokenizer::Text(want.tokens);
  EXPECT_EQ(sink->text(), text.substr(0, text.size() - 1));
  request.stopping.include_stop_in_output = true;
  sink = Submit(request);
  sink->WaitForEnd();
  EXPECT_EQ(sink->text(), text);
}

TEST_F(CoordinatorTest, CancelMidStreamEndsWithItsReasonAndFreesBlocksWithinAStep) {
  Begin();
  coordinator_->SetServing();
  const auto sink = Submit(ToyRequest(4, 50));
  runner_->Allow(3);
  runner_->WaitUntilBegun(4);
  const RecordingSink owner_before;
  coordinator_->Cancel("r0", absl::CancelledError("it had ended"), &owner_before);
  coordinator_->Cancel("r0", absl::DeadlineExceededError("too slow"), sink.get());
  coordinator_->Cancel("r0", absl::CancelledError("later"), nullptr);
  coordinator_->Cancel("nobody", absl::CancelledError(""), nullptr);
  runner_->Allow(kAll);
  const RequestEnd end = sink->WaitForEnd();
  EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sink->tokens().size(), 4);
  const auto next = Submit(ToyRequest(4, 2));  // its id is free again
  EXPECT_TRUE(next->WaitForEnd().status.ok());
  coordinator_->BeginDrain(absl::InfiniteDuration());
  loop_.join();
  EXPECT_EQ(coordinator_->Load().scheduler.num_blocks_used, 0);
}

TEST_F(CoordinatorTest, CancelInTheQueueEndsBeforeAnythingRuns) {
  Begin();
  coordinator_->SetServing();
  const auto first = Submit(ToyRequest(4, 3, 1));
  runner_->WaitUntilBegun(1);
  const auto second = Submit(ToyRequest(4, 3, 2));
  EXPECT_EQ(coordinator_->Load().scheduler.num_waiting, 1);
  for (const char* id : {"r1", "r2"})
    coordinator_->Cancel(id, absl::CancelledError("all"), nullptr);
  runner_->Allow(kAll);
  EXPECT_EQ(first->WaitForEnd().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->WaitForEnd().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(second->tokens().empty());
}

TEST_F(CoordinatorTest, SameIdInFlightIsRefused) {
  Begin();
  coordinator_->SetServing();
  const auto sink = Submit(ToyRequest(4, 3));
  const absl::Status refused =
      coordinator_->Submit(ToyRequest(2, 2), std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  runner_->Allow(kAll);
  sink->WaitForEnd();
  EXPECT_TRUE(Submit(ToyRequest(4, 3))->WaitForEnd().status.ok());
}

TEST_F(CoordinatorTest, FullQueueAndRequestThatNeverFitsAreRefusedAtOnce) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  limits.max_num_queued_reqs = 1;
  limits.num_kv_blocks = 8;
  Begin(limits);
  coordinator_->SetServing();
  const auto sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(coordinator_->Submit(ToyRequest(20, 30, 9), sink).code(),
            absl::StatusCode::kOutOfRange);
  const auto first = Submit(ToyRequest(4, 3, 1));
  const auto second = Submit(ToyRequest(4, 3, 2));
  EXPECT_EQ(coordinator_->Submit(ToyRequest(4, 3, 3), sink).code(),
            absl::StatusCode::kResourceExhausted);
  runner_->Allow(kAll);
  first->WaitForEnd();
  second->WaitForEnd();
  EXPECT_FALSE(sink->ended());
}

TEST_F(CoordinatorTest, DrainFinishesWhatWasAcceptedAndThenStops) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  const auto running = Submit(ToyRequest(4, 6, 1));
  const auto queued = Submit(ToyRequest(4, 6, 2));
  runner_->WaitUntilBegun(1);
  coordinator_->BeginDrain(absl::Seconds(100));
  const absl::Status refused =
      coordinator_->Submit(ToyRequest(4, 6, 3), std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "DRAINING");
  runner_->Allow(kAll);
  loop_.join();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(running->tokens().size(), 6);
  EXPECT_EQ(queued->tokens().size(), 6);
  EXPECT_TRUE(queued->WaitForEnd().status.ok());
}

TEST_F(CoordinatorTest, DrainEndsTheRestWhenItsTimeIsOver) {
  Begin();
  coordinator_->SetServing();
  const auto sink = Submit(ToyRequest(4, 50));
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);
  coordinator_->BeginDrain(absl::Seconds(100));
  coordinator_->BeginDrain(absl::Seconds(5));
  coordinator_->BeginDrain(absl::Seconds(100));
  now_ns_ += 6'000'000'000;
  testing::internal::CaptureStderr();
  runner_->Allow(kAll);
  loop_.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 request was cut"));
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(sink->WaitForEnd().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sink->tokens().size(), 3);
}

TEST_F(CoordinatorTest, TheEndOfADrainSaysHowManyFinishedAndHowManyWereCut) {
  Begin();
  coordinator_->SetServing();
  std::vector<DrainOutcome> outcomes;
  const auto add = std::make_shared<const DrainEnd>(
      [&outcomes](const DrainOutcome& outcome) { outcomes.push_back(outcome); });
  const auto cut = Submit(ToyRequest(4, 50, 1));
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);
  const auto finished = Submit(ToyRequest(4, 1, 2));
  coordinator_->BeginDrain(absl::Seconds(100), add);
  coordinator_->BeginDrain(absl::Seconds(5));
  runner_->Allow(4);
  EXPECT_TRUE(finished->WaitForEnd().status.ok());
  now_ns_ += 6'000'000'000;
  runner_->Allow(kAll);
  loop_.join();
  EXPECT_EQ(cut->WaitForEnd().status.code(), absl::StatusCode::kUnavailable);
  coordinator_->BeginDrain(absl::Seconds(100), add);  // it is over
  ASSERT_EQ(outcomes.size(), 2);
  for (const DrainOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.finished, 1);
    EXPECT_EQ(outcome.cut, 1);
  }
}

TEST_F(CoordinatorTest, ThoseThatNoLongerWaitForADrainTakeNoMemory) {
  Begin();
  coordinator_->SetServing();
  const auto request = Submit(ToyRequest(4, 1));
  const auto token = std::make_shared<int>();  // there as long as what the coordinator keeps
  for (int i = 0; i < 100; ++i) {
    const std::shared_ptr<const DrainEnd> ended(new DrainEnd([](const DrainOutcome&) { FAIL(); }),
                                                [token](const DrainEnd* end) { delete end; });
    coordinator_->BeginDrain(absl::Seconds(100), ended);
  }
  EXPECT_LE(token.use_count(), 3);
  runner_->Allow(kAll);
  loop_.join();
  EXPECT_TRUE(request->WaitForEnd().status.ok());
}

TEST_F(CoordinatorTest, IdleDrainStopsAtOnce) {
  Begin();
  coordinator_->SetServing();
  coordinator_->BeginDrain(absl::InfiniteDuration());
  loop_.join();
  EXPECT_TRUE(status_.ok());
}

TEST_F(CoordinatorTest, FailEndsEverythingWhileTheStepHangs) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  const auto running = Submit(ToyRequest(4, 50, 1));
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);
  const auto queued = Submit(ToyRequest(4, 50, 2));
  coordinator_->Fail(absl::UnavailableError("rank 1 on host b ended"));
  coordinator_->Fail(absl::InternalError("later"));
  EXPECT_THAT(std::string(running->WaitForEnd().status.message()), HasSubstr("rank 1 on host b"));
  EXPECT_EQ(queued->WaitForEnd().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(running->tokens().size(), 2);
  const absl::Status refused =
      coordinator_->Submit(ToyRequest(4, 5, 3), std::make_shared<RecordingSink>());
  EXPECT_EQ(ReasonOf(refused), "RANK_LOST");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 1"));
  EXPECT_EQ(coordinator_->state(), GroupState::kLost);
  runner_->Allow(kAll);  // the step returns after all: its tokens are dropped
  loop_.join();
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(running->tokens().size(), 2);
}

TEST_F(CoordinatorTest, FailWhileItDeliversGivesEveryRequestOneEnd) {
  for (int round = 0; round < 50; ++round) {
    Begin();
    coordinator_->SetServing();
    runner_->Allow(kAll);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 6; ++i) sinks.push_back(Submit(ToyRequest(4, 50, i)));
    sinks[round % 6]->WaitForTokens(1 + round % 7);
    coordinator_->Fail(absl::UnavailableError("lost"));
    loop_.join();
    for (const auto& sink : sinks) sink->WaitForEnd();
    coordinator_.reset();
  }
}

TEST_F(CoordinatorTest, StepThatFailsEndsEveryRequestWithItsStatus) {
  Begin();
  coordinator_->SetServing();
  runner_->FailWith(absl::InternalError("the plan oversteps an arena"));
  runner_->Allow(kAll);
  const auto sink = Submit(ToyRequest(4, 5));
  EXPECT_EQ(sink->WaitForEnd().status.code(), absl::StatusCode::kInternal);
  loop_.join();
  EXPECT_EQ(status_.code(), absl::StatusCode::kInternal);
}

TEST_F(CoordinatorTest, EndTellsWhatOfThePromptWasCached) {
  SchedulerLimits limits = ToyLimits();
  limits.prefix_caching = true;
  Begin(limits);
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const Request request = ToyRequest(14, 3);
  EXPECT_EQ(Submit(request)->WaitForEnd().cached_prompt_tokens, 0);
  const auto sink = Submit(request);
  EXPECT_EQ(sink->WaitForEnd().cached_prompt_tokens, 12);
  EXPECT_EQ(sink->tokens(), Want(request).tokens);
}

TEST_F(CoordinatorTest, ManyThreadsSubmitAndCancel) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 40; ++i) {
        Request request = ToyRequest(1 + i % 20, 1 + i % 11, 100 * t + i);
        const auto sink = Submit(request);
        if (i % 4 == 3)
          coordinator_->Cancel(request.request_id, absl::CancelledError("enough"), nullptr);
        const RequestEnd end = sink->WaitForEnd();
        if (end.status.ok()) {
          EXPECT_EQ(sink->tokens(), Want(request).tokens);
        }
        EXPECT_TRUE(end.status.ok() || absl::IsCancelled(end.status));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace bulkhead
