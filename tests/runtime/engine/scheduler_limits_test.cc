#include "runtime/engine/scheduler_limits.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

TEST(SchedulerLimitsTest, EveryLimitMustBeOneToScheduleWith) {
  EXPECT_TRUE(ValidateLimits(ToyLimits()).ok());
  SchedulerLimits limits = ToyLimits();
  limits.max_num_batched_tokens = 0;
  EXPECT_EQ(ValidateLimits(limits).code(), absl::StatusCode::kInvalidArgument);
  limits = ToyLimits();
  limits.max_num_queued_reqs = -1;
  EXPECT_FALSE(ValidateLimits(limits).ok());
  limits = ToyLimits();
  limits.depth = 0;
  EXPECT_FALSE(ValidateLimits(limits).ok());
}

TEST(SchedulerLimitsTest, PromptMustLeaveRoomForOneToken) {
  const SchedulerLimits limits = ToyLimits();  // 64 tokens
  EXPECT_TRUE(CheckRequestFits(limits, 63, 0, 1).ok());
  const absl::Status too_long = CheckRequestFits(limits, 64, 0, 1);
  EXPECT_EQ(too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(too_long), "PROMPT_TOO_LONG");
  EXPECT_THAT(too_long.message(), testing::HasSubstr("shorten it to at most 63"));
  const absl::Status resumed = CheckRequestFits(limits, 10, 55, 10);
  EXPECT_EQ(ReasonOf(resumed), "PROMPT_TOO_LONG");
  EXPECT_THAT(resumed.message(), testing::HasSubstr("the prompt's 10 tokens and the 55 that"));
  EXPECT_THAT(resumed.message(), testing::Not(testing::HasSubstr("shorten")));
  EXPECT_TRUE(CheckRequestFits(limits, 10, 54, 54).ok()) << "it asks how the generation ended";
  EXPECT_TRUE(CheckRequestFits(limits, 64, 0, 0).ok());
  EXPECT_FALSE(CheckRequestFits(limits, 65, 0, 0).ok());
  EXPECT_FALSE(CheckRequestFits(limits, 0, 0, 1).ok());
  EXPECT_FALSE(CheckRequestFits(limits, 4, 0, -1).ok());
}

TEST(SchedulerLimitsTest, MaxTokensIsCappedByTheModelsLength) {
  SchedulerLimits limits = ToyLimits();
  limits.num_kv_blocks = 16;  // exactly one sequence of 64 tokens
  EXPECT_TRUE(CheckRequestFits(limits, 10, 0, 2000000000).ok());
  limits.num_kv_blocks = 15;
  EXPECT_EQ(CheckRequestFits(limits, 10, 0, 2000000000).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MaxTotalTokens(limits, 10, 2000000000), 64);
}

}  // namespace
}  // namespace bulkhead
