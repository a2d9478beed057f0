// The times of a request, and what rank 0's thread spent on its steps.
#include <gtest/gtest.h>

#include <utility>

#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

using RequestTimingsTest = CoordinatorTest;

TEST_F(RequestTimingsTest, TimingsCountFromTheArrivalAndTheQueueFromTheSubmission) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  Begin(limits);
  coordinator_->SetServing();
  now_ns_ = 40'000;
  const auto runs = Submit(ToyRequest(4, 1));
  Request request = ToyRequest(4, 3, 1);
  request.arrived_ns = 30'000;
  const auto waits = Submit(std::move(request));
  runner_->WaitUntilBegun(1);
  now_ns_ += 100;
  EXPECT_DOUBLE_EQ(coordinator_->Metrics().oldest_waiting_s, 100e-9);
  runner_->Allow(1);
  runner_->WaitUntilBegun(2);
  now_ns_ += 500;
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);
  now_ns_ += 200;
  runner_->Allow(kAll);
  EXPECT_EQ(runs->WaitForEnd().timings.prepare_ns, 0);
  const RequestEnd end = waits->WaitForEnd();
  EXPECT_EQ(end.timings.prepare_ns, 10'000);
  EXPECT_EQ(end.timings.queue_ns, 100);
  EXPECT_EQ(end.timings.first_token_ns, 10'600);
  EXPECT_EQ(end.timings.total_ns, 10'800);
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_DOUBLE_EQ(metrics.queue_seconds.sum(), 100e-9);
  EXPECT_DOUBLE_EQ(metrics.prefill_seconds.sum(), 500e-9 + 100e-9);
  EXPECT_DOUBLE_EQ(metrics.inference_seconds.sum(), 700e-9 + 100e-9);
  EXPECT_DOUBLE_EQ(metrics.e2e_seconds.sum(), 10'800e-9 + 100e-9);
}

TEST_F(RequestTimingsTest, CostsAreThoseBetweenTheFirstSchedulingAndTheEnd) {
  Begin();
  coordinator_->SetServing();
  const auto sink = Submit(ToyRequest(4, 3, 1));
  runner_->WaitUntilBegun(1);
  collective_ns_ += 50;
  sampling_ns_ += 7;
  tokenizer_.SetDelay(10);
  runner_->Allow(1);
  runner_->WaitUntilBegun(2);
  const auto late = Submit(ToyRequest(5, 3, 2));
  runner_->Allow(2);
  runner_->WaitUntilBegun(3);  // the other one's first
  collective_ns_ += 20;
  runner_->Allow(kAll);
  const RequestEnd end = sink->WaitForEnd();
  EXPECT_EQ(end.timings.costs.collective_ns, 70);
  EXPECT_EQ(end.timings.costs.sampling_ns, 7);
  const RequestEnd late_end = late->WaitForEnd();
  EXPECT_EQ(late_end.timings.costs.collective_ns, 20);
  EXPECT_EQ(late_end.timings.costs.sampling_ns, 0);
  // Its own three tokens, and the other one's last, from its first step.
  EXPECT_EQ(end.timings.costs.text_ns, 40);
  EXPECT_EQ(late_end.timings.costs.text_ns, 40);
  EXPECT_GE(late_end.timings.total_ns, late_end.timings.queue_ns + 40);
}

}  // namespace
}  // namespace bulkhead
