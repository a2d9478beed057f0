// A request's time limit in the coordinator.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

using TimeLimitTest = CoordinatorTest;

TEST_F(TimeLimitTest, ATimeLimitEndsARequestAtAStepBorderWithWhatItHas) {
  Begin();
  coordinator_->SetServing();
  Request request = ToyRequest(5, 20);
  request.time_limit_ms = 100;
  request.stopping.stop = {"never in the text"};
  const std::vector<TokenId> want = Want(request).tokens;
  const auto limited = Submit(request);
  Request other = ToyRequest(5, 12, 1);
  const auto free = Submit(other);
  runner_->Allow(3);
  limited->WaitForTokens(2);
  EXPECT_FALSE(limited->ended());
  now_ns_ += 100'000'000;
  runner_->Allow(kAll);
  const RequestEnd end = limited->WaitForEnd();
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.reason, FinishReason::kTimeLimit);
  const std::vector<TokenId> got = limited->tokens();
  ASSERT_GE(got.size(), 2);
  ASSERT_LE(got.size(), 4);
  EXPECT_EQ(end.completion_tokens, static_cast<int>(got.size()));
  EXPECT_EQ(got, std::vector<TokenId>(want.begin(), want.begin() + got.size()));
  EXPECT_EQ(limited->text(), LetterTokenizer::Text(got)) << "nothing is held back";
  EXPECT_EQ(free->WaitForEnd().reason, FinishReason::kMaxTokens);
}

TEST_F(TimeLimitTest, AnAnswerThatEndedWithinACharacterGoesOnWithAllOfIt) {
  tokenizer_.SetHalves();
  Begin();
  coordinator_->SetServing();
  Request request = ToyRequest(5, 8);
  request.time_limit_ms = 100;
  const auto limited = Submit(request);
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);
  now_ns_ += 100'000'000;
  runner_->Allow(kAll);
  EXPECT_EQ(limited->WaitForEnd().reason, FinishReason::kTimeLimit);
  std::string text = limited->text();
  EXPECT_EQ(text, "\u00E9");
  request.time_limit_ms.reset();
  request.emitted = limited->tokens();
  ASSERT_EQ(request.emitted.size(), 3);
  request.text_bytes_sent = text.size();
  const auto resumed = Submit(request);
  EXPECT_TRUE(resumed->WaitForEnd().status.ok());
  text += resumed->text();
  EXPECT_EQ(text, "\u00E9\u00E9\u00E9\u00E9");
}

TEST_F(TimeLimitTest, ATimeLimitPassesInTheQueueToo) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  const auto runs = Submit(ToyRequest(5, 20));
  Request request = ToyRequest(5, 20, 1);
  request.time_limit_ms = 1;
  const auto waits = Submit(request);
  runner_->Allow(1);
  runs->WaitForTokens(1);
  now_ns_ += 1'000'000;
  runner_->Allow(2);
  const RequestEnd end = waits->WaitForEnd();
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.reason, FinishReason::kTimeLimit);
  EXPECT_TRUE(waits->tokens().empty());
  EXPECT_EQ(end.timings.queue_ns, 1'000'000);
  EXPECT_EQ(end.timings.total_ns, 1'000'000);
  EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.queue_seconds.count(), 1);
  EXPECT_DOUBLE_EQ(metrics.queue_seconds.sum(), .001);
  EXPECT_EQ(metrics.prompt_tokens, 5) << "of the one that runs";
  EXPECT_EQ(metrics.request_computed_prompt_tokens.count(), 0);
  runner_->Allow(kAll);
  EXPECT_TRUE(runs->WaitForEnd().status.ok());
  metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.prompt_tokens, 5);
  EXPECT_EQ(metrics.request_computed_prompt_tokens.sum(), 5);
}

TEST_F(TimeLimitTest, ATimeLimitCountsFromTheArrival) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  now_ns_ = 50'000'000;
  const auto runs = Submit(ToyRequest(5, 20));
  Request request = ToyRequest(5, 20, 1);
  request.time_limit_ms = 10;
  request.arrived_ns = 44'000'000;
  const auto waits = Submit(std::move(request));
  runner_->Allow(1);
  runs->WaitForTokens(1);
  now_ns_ += 4'000'000;
  runner_->Allow(2);
  const RequestEnd end = waits->WaitForEnd();
  EXPECT_EQ(end.reason, FinishReason::kTimeLimit);
  EXPECT_EQ(end.timings.prepare_ns, 6'000'000);
  EXPECT_EQ(end.timings.queue_ns, 4'000'000);
  EXPECT_EQ(end.timings.total_ns, 10'000'000);
  runner_->Allow(kAll);
  EXPECT_TRUE(runs->WaitForEnd().status.ok());
}

TEST_F(TimeLimitTest, AnEmbeddingThatIsNotThereAtItsTimeLimitIsAnError) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  const auto runs = Submit(ToyRequest(5, 20));
  std::vector<float> state;
  Request request = ToyRequest(5, 0, 1);
  request.last_hidden_state = &state;
  request.time_limit_ms = 7;
  const auto waits = Submit(request);
  runner_->Allow(1);
  runs->WaitForTokens(1);
  now_ns_ += 7'000'000;
  runner_->Allow(kAll);
  const RequestEnd end = waits->WaitForEnd();
  EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(end.status), reason::kDeadline);
  EXPECT_THAT(end.status.message(), testing::HasSubstr("time_limit_ms of 7;"));
  EXPECT_TRUE(runs->WaitForEnd().status.ok());
}

}  // namespace
}  // namespace bulkhead
