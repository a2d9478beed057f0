// What the coordinator counts of steps and requests.
#include "runtime/engine/engine_metrics.h"

#include "gtest/gtest.h"
#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(FixedHistogramTest, ABoundIsPartOfItsBucket) {
  constexpr double kBounds[] = {1, 2, 5};
  FixedHistogram histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 5.0, 5.1}) histogram.Observe(value);
  EXPECT_EQ(histogram.count(0), 2);
  EXPECT_EQ(histogram.count(1), 2);
  EXPECT_EQ(histogram.count(2), 1);
  EXPECT_EQ(histogram.count(3), 1);
  EXPECT_EQ(histogram.count(), 6);
  EXPECT_DOUBLE_EQ(histogram.sum(), 14.6);
}

TEST(FixedHistogramTest, AQuantileIsLinearWithinABucketButTheFirst) {
  constexpr double kBounds[] = {1, 2, 4};
  FixedHistogram histogram(kBounds);
  const auto quantile = [&](double q) {
    return QuantileOf(histogram.bounds(), histogram.counts(), q);
  };
  for (int i = 0; i < 10; ++i) histogram.Observe(1.5);
  EXPECT_DOUBLE_EQ(quantile(0.5), 1.5);
  for (int i = 0; i < 10; ++i) histogram.Observe(3);
  EXPECT_DOUBLE_EQ(quantile(0.75), 3);
  for (int i = 0; i < 100; ++i) histogram.Observe(9);
  EXPECT_DOUBLE_EQ(quantile(0.99), 4) << "the last bound";
  for (int i = 0; i < 1000; ++i) histogram.Observe(1e-3);
  EXPECT_DOUBLE_EQ(quantile(0.25), 1) << "within the first bucket nothing is known";
  EXPECT_DOUBLE_EQ(quantile(0.5), 1);
}

TEST(EngineMetricsTest, LengthsAreCountedUpToTheModelsLength) {
  EXPECT_EQ(EngineMetrics(4096).request_prompt_tokens.bounds().back(), 2000);
  EXPECT_EQ(EngineMetrics(5000).request_prompt_tokens.bounds().back(), 5000);
  EXPECT_EQ(EngineMetrics(4096).request_prompt_tokens.bounds().size(), 11);
}

TEST(EngineMetricsTest, EveryEndIsCountedOnceByItsKind) {
  EXPECT_EQ(EndKindOf(absl::OkStatus(), FinishReason::kStopString), EndKind::kStop);
  EXPECT_EQ(EndKindOf(absl::OkStatus(), FinishReason::kModelLength), EndKind::kLength);
  EXPECT_EQ(EndKindOf(absl::OkStatus(), FinishReason::kTimeLimit), EndKind::kTimeLimit);
  EXPECT_EQ(EndKindOf(absl::CancelledError("x"), FinishReason::kEos), EndKind::kAbort);
  EXPECT_EQ(EndKindOf(absl::UnavailableError("x"), FinishReason::kEos), EndKind::kError);
}

TEST(EngineMetricsTest, AResumedRequestCountsWhatItGeneratesHere) {
  EngineMetrics metrics(100);
  RequestFigures request;
  request.prompt_tokens = 4;
  request.completion_tokens = request.resumed_tokens = 10;
  for (int i = 1; i <= 3; ++i) {
    metrics.CountTokens(request, 1, i * 20 * kMs);
    ++request.completion_tokens;
    if (i == 1) request.timings.first_token_ns = 20 * kMs;
  }
  metrics.CountEnd(request, EndKind::kLength);
  EXPECT_EQ(metrics.request_generation_tokens.sum(), 3);
  EXPECT_DOUBLE_EQ(metrics.time_per_output_token_seconds.sum(), .02);
  EXPECT_EQ(metrics.inter_token_seconds.count(), 2);
}

TEST(EngineMetricsTest, APromptCountsOnlyWhereItWasComputed) {
  EngineMetrics metrics(100);
  RequestFigures request;
  request.prompt_tokens = 4;
  metrics.CountEnd(request, EndKind::kTimeLimit);  // in the queue
  metrics.CountEnd(request, EndKind::kLength);     // resumed behind its last token
  request.admitted = true;
  metrics.CountEnd(request, EndKind::kTimeLimit);  // before the first token
  EXPECT_EQ(metrics.prompt_tokens, 0);
  EXPECT_EQ(metrics.request_computed_prompt_tokens.count(), 0);
  EXPECT_EQ(metrics.e2e_seconds.count(), 3);
  metrics.CountEnd(request, EndKind::kLength);  // only scored
  EXPECT_EQ(metrics.prompt_tokens, 4);
  EXPECT_EQ(metrics.request_computed_prompt_tokens.sum(), 4);
}

class CoordinatorMetricsTest : public CoordinatorTest {
 protected:
  // A request whose prompt takes 30 ms and whose later tokens take 50 ms each.
  void RunOne(int prompt, int tokens, uint64_t seed = 0) {
    const auto sink = Submit(ToyRequest(prompt, tokens, seed));
    const int64_t begun = begun_;
    for (int i = 0; i < tokens; ++i) {
      runner_->WaitUntilBegun(begun + i + 1);
      now_ns_ += (i == 0 ? 30 : 50) * kMs;
      runner_->Allow(begun + i + 1);
    }
    EXPECT_TRUE(sink->WaitForEnd().status.ok());
    begun_ += tokens;
  }
  int64_t begun_ = 0;
};

TEST_F(CoordinatorMetricsTest, TimesAndLengthsOfARequestAreCounted) {
  Begin();
  coordinator_->SetServing();
  RunOne(4, 3);
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.prompt_tokens, 4);
  EXPECT_EQ(metrics.ends[static_cast<int>(EndKind::kLength)], 1);
  EXPECT_DOUBLE_EQ(metrics.first_token_seconds.sum(), .03);
  EXPECT_EQ(metrics.first_token_by_lane[0].count(), 1);
  EXPECT_EQ(metrics.inter_token_seconds.count(), 2);
  EXPECT_DOUBLE_EQ(metrics.inter_token_seconds.sum(), .1);
  EXPECT_DOUBLE_EQ(metrics.decode_seconds.sum(), .1);
  EXPECT_DOUBLE_EQ(metrics.prefill_seconds.sum(), .03);
  EXPECT_DOUBLE_EQ(metrics.e2e_seconds.sum(), .13);
  EXPECT_DOUBLE_EQ(metrics.time_per_output_token_seconds.sum(), .05);
  EXPECT_EQ(metrics.request_prompt_tokens.sum(), 4);
  EXPECT_EQ(metrics.request_generation_tokens.sum(), 3);
  EXPECT_EQ(metrics.request_max_tokens.sum(), 3);
}

TEST_F(CoordinatorMetricsTest, EveryStepIsCountedWithItsTokens) {
  Begin();
  coordinator_->SetServing();
  RunOne(4, 3);
  while (coordinator_->Metrics().steps < 3) absl::SleepFor(absl::Milliseconds(1));
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.steps, 3);
  EXPECT_EQ(metrics.iteration_tokens.count(), 3);
  EXPECT_EQ(metrics.iteration_tokens.sum(), 4 + 3);
}

TEST_F(CoordinatorMetricsTest, WhileAStepHangsItsAgeGrowsAndMetricsAreTold) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  EXPECT_EQ(coordinator_->Metrics().last_step_age_s, 0);
  now_ns_ += 5000 * kMs;
  const auto runs = Submit(ToyRequest(4, 2));
  runner_->WaitUntilBegun(1);
  now_ns_ += 2000 * kMs;
  const auto waits = Submit(ToyRequest(4, 2, 1));
  now_ns_ += 1000 * kMs;
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_DOUBLE_EQ(metrics.last_step_age_s, 3);
  EXPECT_DOUBLE_EQ(metrics.oldest_waiting_s, 1);
  runner_->Allow(kAll);
  EXPECT_TRUE(runs->WaitForEnd().status.ok());
  EXPECT_TRUE(waits->WaitForEnd().status.ok());
  EXPECT_EQ(coordinator_->Metrics().last_step_age_s, 0);
  EXPECT_EQ(coordinator_->Metrics().oldest_waiting_s, 0);
}

TEST_F(CoordinatorMetricsTest, ACancelledRequestIsNoFinishedOne) {
  Begin();
  coordinator_->SetServing();
  const Request request = ToyRequest(4, 9);
  const auto sink = Submit(request);
  coordinator_->Cancel(request.request_id, absl::CancelledError("gone"), nullptr);
  runner_->Allow(kAll);
  EXPECT_TRUE(absl::IsCancelled(sink->WaitForEnd().status));
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.ends[static_cast<int>(EndKind::kAbort)], 1);
  EXPECT_EQ(metrics.e2e_seconds.count(), 0);
}

TEST_F(CoordinatorMetricsTest, CachedPromptTokensAndLanesAreToldApart) {
  SchedulerLimits limits = ToyLimits();
  limits.prefix_caching = true;
  Begin(limits);
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const Request request = ToyRequest(LongPromptTokens(limits) + 1, 3);
  Submit(request)->WaitForEnd();
  const int cached = Submit(request)->WaitForEnd().cached_prompt_tokens;
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_GT(cached, 0);
  EXPECT_EQ(metrics.cached_prompt_tokens, static_cast<uint64_t>(cached));
  EXPECT_EQ(metrics.prompt_tokens, 2 * request.prompt.size());
  EXPECT_EQ(metrics.first_token_by_lane[static_cast<int>(PromptLane::kLong)].count(), 1);
  EXPECT_EQ(metrics.first_token_by_lane[static_cast<int>(PromptLane::kShort)].count(), 1)
      << "of the second one, the cache leaves less";
  EXPECT_TRUE(metrics.prefix_caching);
}

TEST_F(CoordinatorMetricsTest, ThePromptThatWaitsForAnEqualOneHasTheLaneInWhichItWaits) {
  SchedulerLimits limits = ToyLimits();
  limits.prefix_caching = true;
  limits.max_model_len = 256;
  limits.max_num_batched_tokens = 128;
  limits.num_kv_blocks = 400;
  Begin(limits);
  coordinator_->SetServing();
  const auto before = Submit(ToyRequest(4, 3, 1));
  runner_->WaitUntilBegun(1);
  const Request request = ToyRequest(100, 3, 2);
  const auto first = Submit(request);
  Request equal = request;
  equal.request_id += "-again";
  const auto second = Submit(equal);
  EXPECT_EQ(coordinator_->Load().scheduler.num_waiting, 2);
  runner_->Allow(kAll);
  first->WaitForEnd();
  EXPECT_GT(second->WaitForEnd().cached_prompt_tokens, 0);
  EXPECT_EQ(
      coordinator_->Metrics().first_token_by_lane[static_cast<int>(PromptLane::kLong)].count(), 2);
}

}  // namespace
}  // namespace bulkhead
