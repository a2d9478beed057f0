#include "runtime/service/answer_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using Hold = AnswerBudget::Hold;
using Use = AnswerBudget::Use;

class AnswerBudgetTest : public testing::Test {
 protected:
  static constexpr int64_t kLimit = 800;
  static HostQuotas Quotas() {
    HostQuotas quotas;
    quotas.answer_bytes = kLimit;
    return quotas;
  }
  PeakCounter counter_;
  ErrorCounts errors_;
  AnswerBudget budget_{Quotas(), &counter_, &errors_};
};

TEST_F(AnswerBudgetTest, HoldsAreCountedAndGivenBack) {
  {
    absl::StatusOr<Hold> first = budget_.Admit(300);
    ASSERT_TRUE(first.ok());
    Hold moved = *std::move(first);
    EXPECT_EQ(moved.bytes(), 300);
    EXPECT_TRUE(budget_.Grow(moved, 350, Use::kNewWork).ok());
    EXPECT_TRUE(budget_.Grow(moved, 10, Use::kNewWork).ok());  // it is already larger
    EXPECT_EQ(counter_.now(), 350);
    moved.ShrinkTo(400);
    EXPECT_EQ(counter_.now(), 350);
    moved.ShrinkTo(100);
    EXPECT_EQ(counter_.now(), 100);
  }
  EXPECT_EQ(counter_.now(), 0);
  EXPECT_EQ(counter_.peak(), 350);
}

TEST_F(AnswerBudgetTest, WhatItDoesNotHaveNowIsRefusedWithAReasonAndAHint) {
  const absl::StatusOr<Hold> first = budget_.Admit(600);
  ASSERT_TRUE(first.ok());
  const absl::Status refused = budget_.Admit(101).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "ANSWER_BUDGET");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_TRUE(budget_.Admit(100).ok());
}

TEST_F(AnswerBudgetTest, WhatItCanNeverHaveIsNoInvitationToTryAgain) {
  EXPECT_TRUE(budget_.Admit(700).ok());
  const absl::Status refused = budget_.Admit(701).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReasonOf(refused), "ANSWER_BUDGET");
  EXPECT_FALSE(RetryAfter(refused).has_value());
}

TEST_F(AnswerBudgetTest, AnEighthIsLeftToWorkThatWasAccepted) {
  absl::StatusOr<Hold> hold = budget_.Admit(700);
  ASSERT_TRUE(hold.ok());
  EXPECT_FALSE(budget_.Grow(*hold, 701, Use::kNewWork).ok());
  EXPECT_EQ(hold->bytes(), 700);
  EXPECT_TRUE(budget_.Grow(*hold, kLimit, Use::kAcceptedWork).ok());
  EXPECT_FALSE(budget_.Grow(*hold, kLimit + 1, Use::kAcceptedWork).ok());
  EXPECT_EQ(counter_.peak(), kLimit);
}

// Two together exceed it, so that two cores suffice to detect it. Counted here: the counter's peak
// is the budget's own value.
TEST_F(AnswerBudgetTest, ThreadsTogetherNeverPassTheLimit) {
  std::vector<std::thread> threads;
  std::atomic<int> admitted{0}, holding{0}, too_many{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200'000; ++n) {
        const absl::StatusOr<Hold> hold = budget_.Admit(600);
        if (!hold.ok()) continue;
        ++admitted;
        if (++holding > 1) ++too_many;
        --holding;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(admitted, 0);
  EXPECT_EQ(too_many, 0);
  EXPECT_EQ(counter_.now(), 0);
  EXPECT_EQ(counter_.peak(), 600);
}

}  // namespace
}  // namespace bulkhead
