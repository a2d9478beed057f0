// A drain and the answers that have ended, but are not with their clients yet.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

class CoordinatorDrainTest : public CoordinatorTest {
 protected:
  // Until num_unsent_ is 0.
  void LeaveOneUnsent() {
    unsent_answers_ = [this](absl::Duration /*timeout*/) {
      ++num_asked_;
      std::this_thread::yield();
      return num_unsent_.load();
    };
  }
  void WaitUntilAsked(int times) {
    for (int i = 0; i < 10'000 && num_asked_ < times; ++i) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_GE(num_asked_, times);
  }

  std::atomic<int> num_asked_ = 0;
  std::atomic<size_t> num_unsent_ = 1;
  std::vector<DrainOutcome> outcomes_;
  const std::shared_ptr<const DrainEnd> ended_ = std::make_shared<const DrainEnd>(
      [this](const DrainOutcome& outcome) { outcomes_.push_back(outcome); });
};

TEST_F(CoordinatorDrainTest, ADrainIsOverWhenTheLastAnswerIsSent) {
  LeaveOneUnsent();
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const auto sink = Submit(ToyRequest(4, 3));
  coordinator_->BeginDrain(absl::Seconds(100), ended_);
  EXPECT_TRUE(sink->WaitForEnd().status.ok());
  WaitUntilAsked(3);
  EXPECT_TRUE(outcomes_.empty());
  num_unsent_ = 0;
  loop_.join();
  EXPECT_TRUE(status_.ok());
  ASSERT_EQ(outcomes_.size(), 1);
  EXPECT_EQ(outcomes_[0].cut, 0);
}

TEST_F(CoordinatorDrainTest, AnswersThatAreNotSentByTheDeadlineAreCut) {
  unsent_answers_ = [&](absl::Duration timeout) {
    now_ns_ += static_cast<uint64_t>(absl::ToInt64Nanoseconds(timeout));
    return size_t{2};
  };
  Begin();
  coordinator_->SetServing();
  runner_->Allow(2);
  const auto sink = Submit(ToyRequest(4, 3));
  runner_->WaitUntilBegun(3);
  coordinator_->BeginDrain(absl::Seconds(100), ended_);
  testing::internal::CaptureStderr();
  runner_->Allow(kAll);
  loop_.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("2 answers were not read"));
  EXPECT_TRUE(status_.ok());
  EXPECT_GE(now_ns_, 100'000'000'000U);
  ASSERT_EQ(outcomes_.size(), 1);
  EXPECT_EQ(outcomes_[0].finished, 0);
  EXPECT_EQ(outcomes_[0].cut, 2);
}

TEST_F(CoordinatorDrainTest, WhatIsCutAndWhatIsNotReadAreCountedOnceEach) {
  unsent_answers_ = [&](absl::Duration timeout) {
    now_ns_ += static_cast<uint64_t>(absl::ToInt64Nanoseconds(timeout));
    return size_t{3};  // one that is cut, and two that have ended
  };
  Begin();
  coordinator_->SetServing();
  const auto first = Submit(ToyRequest(4, 3, 1));
  const auto second = Submit(ToyRequest(4, 3, 2));
  const auto cut = Submit(ToyRequest(4, 30, 3));
  coordinator_->BeginDrain(absl::Seconds(100), ended_);
  runner_->Allow(10);
  EXPECT_TRUE(first->WaitForEnd().status.ok());
  EXPECT_TRUE(second->WaitForEnd().status.ok());
  now_ns_ += 101'000'000'000;
  runner_->Allow(kAll);
  EXPECT_EQ(cut->WaitForEnd().status.code(), absl::StatusCode::kUnavailable);
  loop_.join();
  ASSERT_EQ(outcomes_.size(), 1);
  EXPECT_EQ(outcomes_[0].finished, 0);
  EXPECT_EQ(outcomes_[0].cut, 3);
}

TEST_F(CoordinatorDrainTest, LoadSaysThatNoneIsRunningWhileAnswersAreRead) {
  LeaveOneUnsent();
  Begin();
  coordinator_->SetServing();
  Request request = ToyRequest(4, 100);
  request.time_limit_ms = 1000;
  const auto sink = Submit(std::move(request));
  runner_->Allow(1);
  runner_->WaitUntilBegun(2);
  coordinator_->BeginDrain(absl::Seconds(100), ended_);
  now_ns_ += 2'000'000'000;
  runner_->Allow(kAll);
  sink->WaitForEnd();
  WaitUntilAsked(2);  // when it begins, and when all requests have ended
  EXPECT_EQ(coordinator_->Load().scheduler.num_running, 0);
  num_unsent_ = 0;
  loop_.join();
}

TEST_F(CoordinatorDrainTest, ALossEndsTheWaitForAnswers) {
  LeaveOneUnsent();
  Begin();
  coordinator_->SetServing();
  coordinator_->BeginDrain(absl::Seconds(100), ended_);
  WaitUntilAsked(1);
  coordinator_->Fail(absl::UnavailableError("rank 1 was lost"));
  loop_.join();
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(outcomes_.empty());
}

}  // namespace
}  // namespace bulkhead
