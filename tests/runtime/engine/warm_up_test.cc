#include "runtime/engine/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "comm/local/local_group.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

int64_t clock_ns = 0;

// Simulates the step times of a machine with the test's clock.
class MachineRunner final : public StepRunner {
 public:
  explicit MachineRunner(std::function<double(const StepShape&)> seconds)
      : seconds_(std::move(seconds)) {}
  absl::Status Submit(Step step) override {
    plans.push_back(step.plan);
    shapes.push_back(ShapeOf(step.plan));
    clock_ns += static_cast<int64_t>(seconds_(shapes.back()) * 1e9);
    return absl::OkStatus();
  }
  absl::StatusOr<StepResult> Collect() override { return StepResult(); }

  std::vector<StepShape> shapes;
  std::vector<internal::StepPlan> plans;

 private:
  std::function<double(const StepShape&)> seconds_;
};

SchedulerLimits LimitsOf(int seqs, int tokens) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = seqs;
  limits.max_num_batched_tokens = tokens;
  limits.max_model_len = 4096;
  limits.block_tokens = 16;
  limits.num_kv_blocks = 4096;
  return limits;
}

WarmUpResult WarmUpOn(MachineRunner& runner, const SchedulerLimits& limits,
                      absl::Duration patience = absl::Seconds(10)) {
  const std::unique_ptr<Group> group = NewSingleGroup();
  const auto warm_up = WarmUp(runner, limits, patience, group->exchange(), absl::Minutes(1),
                              [] { return clock_ns; });
  EXPECT_TRUE(warm_up.ok()) << warm_up.status();
  return *warm_up;
}

// A 3 B model on few cores: weights are read in 180 ms; from 7 tokens on the arithmetic takes
// longer.
double BigModelSeconds(const StepShape& shape) {
  return std::max(0.18, 0.026 * static_cast<double>(shape.tokens));
}

TEST(WarmUpTest, AFullChunkThatIsFastIsMeasured) {
  MachineRunner runner([](const StepShape& shape) { return 0.001 * shape.tokens; });
  const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(64, 2048));
  EXPECT_TRUE(warm_up.measured);
  EXPECT_EQ(warm_up.chunk_tokens, 2048);
  EXPECT_NEAR(absl::ToDoubleSeconds(warm_up.chunk), 2.048, 1e-6);
  EXPECT_EQ(runner.shapes.back().tokens, 2048);
}

TEST(WarmUpTest, ASlowChunkIsEstimatedByALineThroughSmallerOnesAndNotRun) {
  MachineRunner runner(BigModelSeconds);
  const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(1, 2048));
  EXPECT_FALSE(warm_up.measured);
  EXPECT_NEAR(absl::ToDoubleSeconds(warm_up.chunk), 53.2, 1);  // proportionally it would be 369 s
  std::vector<int64_t> tokens;
  for (const StepShape& shape : runner.shapes) tokens.push_back(shape.tokens);
  EXPECT_THAT(tokens, ElementsAre(1, 1, 1, 1, 16, 256));
}

TEST(WarmUpTest, NoStepLastsMuchLongerThanThePatience) {
  for (const double scale : {1.0, 3.0, 10.0, 30.0}) {
    clock_ns = 0;
    MachineRunner runner([&](const StepShape& shape) { return scale * BigModelSeconds(shape); });
    const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(1, 2048));
    EXPECT_FALSE(warm_up.measured);
    // A line from the bandwidth-bound to the compute-bound range is too flat.
    EXPECT_GT(absl::ToDoubleSeconds(warm_up.chunk), scale * 53.2 / 2) << scale;
    EXPECT_LT(absl::ToDoubleSeconds(warm_up.chunk), scale * 53.2 * 1.1) << scale;
    // 4 steps of rows only, one of 16 tokens in any case, and others within 10 s.
    EXPECT_LT(static_cast<double>(clock_ns) * 1e-9, scale * (4 * 0.18 + 0.42) + 20) << scale;
  }
}

TEST(WarmUpTest, OnASlowMachineFewSequencesAreTimed) {
  for (const double token_s : {0.002, 0.02, 0.5}) {
    clock_ns = 0;
    MachineRunner runner([&](const StepShape& shape) {
      return token_s * static_cast<double>(shape.tokens + shape.logit_rows) + 1e-5 * shape.context;
    });
    const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(64, 2048), absl::Milliseconds(300));
    EXPECT_EQ(runner.shapes.front().logit_rows, 64);
    EXPECT_NEAR(warm_up.estimate.logit_row_s, token_s, 0.01 * token_s);
    EXPECT_NEAR(warm_up.estimate.context_s, 1e-5, 1e-7);
    // The first step's rows count as its tokens' work.
    EXPECT_GT(absl::ToDoubleSeconds(warm_up.chunk), token_s * 2048);
    EXPECT_LT(absl::ToDoubleSeconds(warm_up.chunk), 2.2 * token_s * 2048);
    // Beyond the step of all rows and a chunk of 16 of one token each in any case.
    EXPECT_LT(static_cast<double>(clock_ns) * 1e-9, 2 * token_s * (64 + 16 + 3) + 2.5) << token_s;
  }
}

// Reading the weights takes as long as the arithmetic of `floor_tokens`; one step in three is late.
TEST(WarmUpTest, NoChunkIsEstimatedToTakeMuchLessThanItDoes) {
  for (const double token_s : {0.001, 0.035, 0.16}) {
    for (const int64_t floor_tokens : {1, 7, 20, 60}) {
      for (int late = 0; late < 7; ++late) {
        clock_ns = 0;
        int step = late;
        const auto seconds = [&](const StepShape& shape) {
          return token_s *
                 static_cast<double>(std::max(shape.tokens, floor_tokens) + shape.logit_rows / 4);
        };
        MachineRunner runner([&](const StepShape& shape) {
          return seconds(shape) * (late < 6 && step++ % 3 == 0 ? 1.2 : 1);
        });
        const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(64, 2048), absl::Milliseconds(300));
        const double truth = seconds({.tokens = 2048, .logit_rows = 64});
        EXPECT_GT(absl::ToDoubleSeconds(warm_up.chunk), truth / 4)
            << token_s << " " << floor_tokens << " " << late;
        EXPECT_LT(absl::ToDoubleSeconds(warm_up.chunk), truth * 5)
            << token_s << " " << floor_tokens << " " << late;
      }
    }
  }
}

TEST(WarmUpTest, TheEstimateKnowsOfRowsTokensAndContext) {
  const StepEstimate truth = {
      .least_s = 0.01, .fixed_s = 0.01, .token_s = 0.002, .logit_row_s = 0.003, .context_s = 1e-6};
  MachineRunner runner(
      [&](const StepShape& shape) { return absl::ToDoubleSeconds(truth.Of(shape)); });
  const WarmUpResult warm_up = WarmUpOn(runner, LimitsOf(8, 512));
  for (const StepShape& shape :
       {StepShape{8, 8, 36}, StepShape{512, 8, 1e4}, StepShape{512, 512, 1e4},
        StepShape{8, 8, 32000}, StepShape{100, 1, 4e5}}) {
    EXPECT_NEAR(absl::ToDoubleSeconds(warm_up.estimate.Of(shape)),
                absl::ToDoubleSeconds(truth.Of(shape)),
                0.05 * absl::ToDoubleSeconds(truth.Of(shape)))
        << shape.tokens << " " << shape.logit_rows << " " << shape.context;
  }
}

TEST(WarmUpTest, FewSequencesOfFewTokensMakeTheLargestStepThatThereCanBe) {
  MachineRunner runner([](const StepShape&) { return 0.001; });
  SchedulerLimits limits = LimitsOf(2, 2048);
  limits.max_model_len = 100;
  const WarmUpResult warm_up = WarmUpOn(runner, limits);
  EXPECT_TRUE(warm_up.measured);
  EXPECT_EQ(warm_up.chunk_tokens, 200);
}

void ExpectWithin(const SchedulerLimits& limits, const internal::StepPlan& plan) {
  EXPECT_LE(plan.slot_size(), limits.max_num_seqs);
  EXPECT_LE(plan.token_ids_size(), limits.max_num_batched_tokens);
  EXPECT_EQ(plan.padded_tokens(), plan.token_ids_size());
  for (int s = 0; s < plan.slot_size(); ++s) {
    EXPECT_GE(plan.num_tokens(s), 1);
    EXPECT_LE(plan.start_position(s) + plan.num_tokens(s), limits.max_model_len);
  }
  for (int i = 0; i < plan.table_block_size(); ++i) {
    EXPECT_GE(plan.table_block(i), 1);
    EXPECT_LE(plan.table_block(i), limits.num_kv_blocks);
    EXPECT_LT(plan.table_index(i) * limits.block_tokens, limits.max_model_len);
  }
}

TEST(WarmUpTest, EveryStepIsWithinTheSealedArenas) {
  for (const int64_t blocks : {1, 7, 4096}) {
    for (const auto& [seqs, tokens] : {std::pair(1, 1), std::pair(4, 2), std::pair(8, 64)}) {
      SchedulerLimits limits = ToyLimits();
      limits.max_num_seqs = seqs;
      limits.max_num_batched_tokens = tokens;
      limits.num_kv_blocks = blocks;
      MachineRunner runner([](const StepShape&) { return 0.001; });
      WarmUpOn(runner, limits);
      ASSERT_FALSE(runner.plans.empty());
      for (const internal::StepPlan& plan : runner.plans) ExpectWithin(limits, plan);
    }
  }
}

TEST(StepTimeLimitsTest, TheDefaultIsTenFullChunksWithinAMinuteAndFive) {
  const auto timeout_of = [](absl::Duration chunk) {
    WarmUpResult warm_up;
    warm_up.chunk = chunk;
    return StepTimeLimitsFrom(warm_up, std::nullopt).timeout;
  };
  EXPECT_EQ(timeout_of(absl::Milliseconds(3)), absl::Seconds(60));
  EXPECT_EQ(timeout_of(absl::Milliseconds(9999)), absl::Seconds(100));
  EXPECT_EQ(timeout_of(absl::Minutes(6)), absl::Minutes(5));
}

TEST(StepTimeLimitsTest, ADraftModelThatIsTheSlowerOneSetsThem) {
  WarmUpResult model, draft;
  model.chunk = absl::Seconds(7);
  draft.chunk = absl::Seconds(9);
  draft.estimate.least_s = 4;
  const StepTimeLimits limits = StepTimeLimitsFrom(model, std::nullopt, draft);
  EXPECT_EQ(limits.timeout, absl::Seconds(90));
  ASSERT_TRUE(limits.draft_estimate.has_value());
  EXPECT_EQ(limits.draft_estimate->least_s, 4);
  EXPECT_EQ(limits.estimate->least_s, 0);
  EXPECT_GT(limits.least_estimates, kLateEstimates) << "a warning comes first";
}

TEST(StepTimeLimitsTest, WhatIsGivenIsTheLimitOfEveryStep) {
  const StepTimeLimits limits = StepTimeLimitsFrom({}, absl::Seconds(8));
  EXPECT_EQ(limits.timeout, absl::Seconds(8));
  EXPECT_EQ(limits.least_estimates, 0);
}

TEST(StepTimeTextTest, HasMillisecondsOrWholeSeconds) {
  EXPECT_EQ(StepTimeText(absl::Nanoseconds(1234567890)), "1.234s");
  EXPECT_EQ(StepTimeText(absl::Seconds(369.975)), "6m9s");
}

}  // namespace
}  // namespace bulkhead
