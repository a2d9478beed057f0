#include <thread>

#include "bulkhead/v1/generation.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/held_runner.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

v1::SetLimitsRequest MaxNumSeqs(uint32_t limit) {
  v1::SetLimitsRequest change;
  change.set_max_num_seqs(limit);
  return change;
}
v1::SetLimitsRequest MaxModelLen(uint32_t limit) {
  v1::SetLimitsRequest change;
  change.set_max_model_len(limit);
  return change;
}
v1::SetLimitsRequest MaxNumQueuedReqs(uint32_t limit) {
  v1::SetLimitsRequest change;
  change.set_max_num_queued_reqs(limit);
  return change;
}
v1::SetLimitsRequest Reset() {
  v1::SetLimitsRequest change;
  change.set_reset(true);
  return change;
}
v1::SetLimitsRequest Both(v1::SetLimitsRequest change, const v1::SetLimitsRequest& other) {
  change.MergeFrom(other);
  return change;
}

TEST(LiveLimitsTest, TightenAndWidenUpToWhatWasSealed) {
  const SchedulerLimits sealed = ToyLimits();
  SchedulerLimits expected = sealed;
  SchedulerLimits now = *Changed(sealed, sealed, Both(MaxNumSeqs(1), MaxModelLen(32)));
  expected.max_num_seqs = 1;
  expected.max_model_len = 32;
  EXPECT_EQ(now, expected);
  now = *Changed(sealed, now, MaxNumQueuedReqs(0));
  expected.max_num_queued_reqs = 0;
  EXPECT_EQ(now, expected);
  now = *Changed(sealed, now, Both(Reset(), MaxNumSeqs(2)));
  expected = sealed;
  expected.max_num_seqs = 2;
  EXPECT_EQ(now, expected);
}

TEST(LiveLimitsTest, WhatWasNotSealedIsRefusedWithItsLimit) {
  const SchedulerLimits sealed = ToyLimits();
  for (const v1::SetLimitsRequest& change :
       {MaxNumSeqs(sealed.max_num_seqs + 1), MaxNumSeqs(0), MaxModelLen(sealed.max_model_len + 1),
        MaxModelLen(1), MaxModelLen(0xffffffff),
        MaxNumQueuedReqs(sealed.max_num_queued_reqs + 1)}) {
    const absl::Status refused = Changed(sealed, sealed, change).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("restart it"));
  }
}

TEST(LiveLimitsTest, FewerSequencesAreAdmittedAndThoseThatRunGoOn) {
  ToyLoop loop(ToyLimits());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 8, i)).ok());
  loop.Step();
  const int running = loop.scheduler().load().num_running;
  ASSERT_EQ(running, 2);
  ASSERT_LT(running, ToyLimits().max_num_seqs);  // there are free slots, but they must not be used
  loop.scheduler().SetMaxNumSeqs(1);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(2, 8, 9)).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, running);
  EXPECT_EQ(loop.scheduler().load().pressure.steps_short_of_slots, 1);
  loop.RunToEnd();
  EXPECT_TRUE(loop.scheduler().idle());
  EXPECT_EQ(loop.scheduler().load().pressure.peak_running, running);
  EXPECT_EQ(loop.scheduler().load().pressure.steps_short_of_blocks, 0);
}

TEST(LiveLimitsTest, WaitingForBlocksIsNotWaitingForSlots) {
  SchedulerLimits limits = ToyLimits();
  limits.num_kv_blocks = 10;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 1)).ok());  // 6 blocks in the worst case
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 2)).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().pressure.steps_short_of_blocks, 1);
  EXPECT_EQ(loop.scheduler().load().pressure.steps_short_of_slots, 0);
  EXPECT_EQ(loop.scheduler().load().pressure.peak_blocks_used, 6);
  EXPECT_EQ(loop.scheduler().load().pressure.peak_waiting, 1);
}

class LiveCoordinatorTest : public testing::Test {
 protected:
  void SetUp() override {
    Coordinator::Options options;
    options.limits = ToyLimits();
    options.eos_ids = {kToyEos};
    coordinator_ = std::make_unique<Coordinator>(std::move(options));
    coordinator_->SetServing();
    runner_ = std::make_unique<HeldRunner>(ToyLimits());
    loop_ = std::thread(
        [this] { EXPECT_TRUE(RunRank(*runner_, nullptr, coordinator_.get(), nullptr).ok()); });
  }
  void TearDown() override {
    runner_->Allow(int64_t{1} << 60);
    coordinator_->BeginDrain(absl::InfiniteDuration());
    loop_.join();
  }
  absl::Status Submit(int prompt_tokens, int max_tokens, int salt) {
    last_ = std::make_shared<RecordingSink>();
    Request request = ToyRequest(prompt_tokens, max_tokens, salt);
    request.stopping.ignore_eos = true;
    return coordinator_->Submit(std::move(request), last_);
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<HeldRunner> runner_;
  std::thread loop_;
  std::shared_ptr<RecordingSink> last_;
};

TEST_F(LiveCoordinatorTest, ShorterLengthsBindNewRequestsAndAcceptedOnesKeepTheirWord) {
  ASSERT_TRUE(Submit(10, 40, 1).ok());
  const std::shared_ptr<RecordingSink> promised = last_;
  SchedulerLimits before;
  ASSERT_TRUE(coordinator_->SetLimits(MaxModelLen(20), &before).ok());
  EXPECT_EQ(before.max_model_len, 64);
  EXPECT_EQ(ReasonOf(Submit(20, 4, 2)), "PROMPT_TOO_LONG");
  ASSERT_TRUE(Submit(12, 40, 3).ok());
  const std::shared_ptr<RecordingSink> shortened = last_;
  runner_->Allow(int64_t{1} << 60);
  EXPECT_EQ(promised->WaitForEnd().completion_tokens, 40);
  const RequestEnd end = shortened->WaitForEnd();
  EXPECT_EQ(end.completion_tokens, 8);
  EXPECT_EQ(end.reason, FinishReason::kModelLength);
  ASSERT_TRUE(coordinator_->SetLimits(Reset(), nullptr).ok());
  ASSERT_TRUE(Submit(20, 4, 4).ok());
  EXPECT_EQ(last_->WaitForEnd().completion_tokens, 4);
  EXPECT_EQ(coordinator_->Load().longest_tokens, 50);
  EXPECT_EQ(coordinator_->Load().length_counts[4], 2);  // 20 and 24 tokens
}

TEST_F(LiveCoordinatorTest, ShorterQueueRefusesAtOnce) {
  ASSERT_TRUE(Submit(4, 4, 1).ok());
  ASSERT_TRUE(coordinator_->SetLimits(Both(MaxNumSeqs(1), MaxNumQueuedReqs(0)), nullptr).ok());
  EXPECT_EQ(ReasonOf(Submit(4, 4, 2)), "QUEUE_FULL");
  ASSERT_TRUE(coordinator_->SetLimits(Reset(), nullptr).ok());
  EXPECT_TRUE(Submit(4, 4, 2).ok());
}

}  // namespace
}  // namespace bulkhead
