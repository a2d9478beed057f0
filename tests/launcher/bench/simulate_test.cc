#include "launcher/bench/simulate.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "launcher/bench/token_cost.h"

namespace bulkhead {
namespace {

constexpr StepCost kCost = {1000, 10, 1, 100};

SimulateOptions OptionsOf(int requests) {
  SimulateOptions options;
  options.requests = requests;
  options.input_len = 40;
  options.output_len = 10;
  options.max_num_batched_tokens = 256;
  return options;
}

TEST(SimulateTest, EveryRequestRunsToItsEndAndTheQueueEmpties) {
  const SimulatedRun run = Simulate(OptionsOf(50), kCost, 8, 4);
  ASSERT_FALSE(run.steps.empty());
  EXPECT_EQ(run.steps.front().queued, 50);
  EXPECT_EQ(run.steps.back().queued, 0);
  EXPECT_GE(run.steps.size(), 50U * 5 / 4);  // at least half the mean tokens, four at once
  int64_t drawn = 0;
  for (const StepSample& step : run.steps) {
    EXPECT_GT(step.plan_bytes, 0);
    EXPECT_GE(step.total_s(), step.plan_s);
    EXPECT_LE(step.drawn, 4);
    drawn += step.drawn;
  }
  EXPECT_GE(drawn, 50 * 5);
  EXPECT_LE(drawn, 50 * 15);
  // No step takes less than what is assumed of any step.
  EXPECT_GE(run.group_s, 1e-3 * static_cast<double>(run.steps.size()));
  EXPECT_GT(run.rank0_s, 0);
  EXPECT_LT(run.rank0_s, run.group_s);
}

TEST(SimulateTest, ATokensCostIsThatOfTheRealSamplerAndTheRealText) {
  const std::unique_ptr<Tokenizer> small = MadeUpTokenizer(1000);
  EXPECT_EQ(small->vocab_size(), 1000);
  EXPECT_EQ(small->Decode({{7, 974, 999}}, true), " w7az");
  const TokenCost cost = MeasureTokenCost(*small);
  EXPECT_EQ(cost.vocab_size, 1000);
  EXPECT_GT(cost.greedy_s, 0);
  EXPECT_GT(cost.sampled_s, 0);
  EXPECT_GT(cost.text_s, 0);
}

TEST(SimulateTest, RequestsThatComeApartFindNoQueue) {
  SimulateOptions options = OptionsOf(20);
  options.request_rate = 1;  // a request takes some 20 ms
  const SimulatedRun run = Simulate(options, kCost, 8, 4);
  const auto longest = std::max_element(
      run.steps.begin(), run.steps.end(),
      [](const StepSample& a, const StepSample& b) { return a.queued < b.queued; });
  EXPECT_LE(longest->queued, 3);
  EXPECT_GT(run.group_s, 5);
}

TEST(SimulateTest, PlansAreCopiedForOneNodeAndForTheTreeOverNodes) {
  SimulateOptions options = OptionsOf(1);
  EXPECT_EQ(Simulate(options, kCost, 1, 1).copies, 0);
  EXPECT_EQ(Simulate(options, kCost, 8, 1).copies, 1);
  EXPECT_EQ(Simulate(options, kCost, 9, 1).copies, 2);
  EXPECT_EQ(Simulate(options, kCost, 64, 1).copies, 4);
  EXPECT_EQ(Simulate(options, kCost, 512, 1).copies, 7);
}

TEST(SimulateTest, CostsAreReadFromAMeasurement) {
  const auto cost = CostFrom(R"({"cases": [
      {"batch_size": 1, "step": {"p50_ms": 2}, "prefill_tokens_per_s": 500},
      {"batch_size": 5, "step": {"p50_ms": 4}, "prefill_tokens_per_s": 1000}]})");
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_DOUBLE_EQ(*cost->step_us, 1500);
  EXPECT_DOUBLE_EQ(*cost->decode_row_us, 500);
  EXPECT_DOUBLE_EQ(*cost->prompt_token_us, 1000);
  EXPECT_FALSE(cost->message_us.has_value());
  for (const char* text : {"", "{}", R"({"cases": []})", R"({"cases": [1]})",
                           R"({"cases": [{"step": {"p50_ms": null}}]})"}) {
    EXPECT_FALSE(CostFrom(text).ok()) << text;
  }
}

TEST(SimulateTest, AMeasurementMayHaveAnyNumberAsABatch) {
  const auto cost = CostFrom(R"({"cases": [
      {"batch_size": 1, "step": {"p50_ms": 2}, "prefill_tokens_per_s": 500},
      {"batch_size": 3000000001, "step": {"p50_ms": 5}}]})");
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_DOUBLE_EQ(*cost->decode_row_us, 1e-6);
}

TEST(SimulateTest, AFlagWinsOverAMeasurement) {
  StepCost flags;
  flags.step_us = 7;
  const StepCost merged = Merged(flags, kCost);
  EXPECT_EQ(merged.step_us, 7);
  EXPECT_EQ(merged.message_us, kCost.message_us);
}

}  // namespace
}  // namespace bulkhead
