#include "launcher/bench/serve/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/bench/serve/sweep.h"
#include "memory/exit_code.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Of(double value, double half) {
  return {{"value", value}, {"low", value - half}, {"high", value + half}};
}

json ResultOf(double throughput, double ttft_ms, double half_ms) {
  return {{"x_bulkhead",
           {{"format", 1},
            {"why_invalid", json::array()},
            {"interrupted", false},
            {"workload", {{"input_len", 64}, {"repeats", 1}}},
            {"server", {{"tensor_parallel_size", 1}, {"epoch", "a"}}},
            {"runs", json::array()},
            {"throughput", {{"output_tokens_per_s", Of(throughput, 10)}}},
            {"latencies", {{"ttft_ms", {{"mean", Of(ttft_ms, half_ms)}}}}}}}};
}

Comparison Compared(const json& before, const json& after, bool any_workload = false) {
  const auto comparison = Compare(before.dump(), after.dump(), any_workload);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.value_or(Comparison());
}

TEST(Compare, ADifferenceWithinTheIntervalsIsNone) {
  const Comparison comparison = Compared(ResultOf(500, 100, 10), ResultOf(510, 110, 10));
  ASSERT_EQ(comparison.metrics.size(), 2);
  EXPECT_EQ(comparison.verdict(), Verdict::kSame);
}

TEST(Compare, MoreTokensAreBetterAndMoreMillisecondsWorse) {
  const Comparison better = Compared(ResultOf(500, 100, 10), ResultOf(600, 100, 10));
  EXPECT_EQ(better.metrics[0].verdict, Verdict::kBetter);
  EXPECT_EQ(better.verdict(), Verdict::kBetter);
  const Comparison worse = Compared(ResultOf(500, 100, 10), ResultOf(600, 150, 10));
  EXPECT_EQ(worse.metrics[1].verdict, Verdict::kWorse);
  EXPECT_EQ(worse.verdict(), Verdict::kWorse);
}

TEST(Compare, WideIntervalsLeaveABigDifferenceOpen) {
  EXPECT_EQ(Compared(ResultOf(500, 100, 40), ResultOf(500, 150, 40)).verdict(), Verdict::kSame);
  EXPECT_EQ(Compared(ResultOf(500, 100, 5), ResultOf(500, 150, 5)).verdict(), Verdict::kWorse);
}

TEST(Compare, RunsThatDisagreeWidenTheInterval) {
  json before = ResultOf(500, 100, 5);
  before["x_bulkhead"]["runs"] = {{{"mean_ttft_ms", 60}}, {{"mean_ttft_ms", 140}}};
  EXPECT_EQ(Compared(before, ResultOf(500, 150, 5)).verdict(), Verdict::kSame);
}

TEST(Compare, OtherLoadsAreNotCompared) {
  json other = ResultOf(500, 100, 10);
  other["x_bulkhead"]["workload"]["input_len"] = 128;
  const absl::Status status = Compare(ResultOf(500, 100, 10).dump(), other.dump(), false).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(status.message(), HasSubstr("input_len: 64 -> 128"));
  EXPECT_EQ(Compared(ResultOf(500, 100, 10), other, true).verdict(), Verdict::kSame);
  json repeated = ResultOf(500, 100, 10);
  repeated["x_bulkhead"]["workload"]["repeats"] = 3;  // the same load, measured more often
  EXPECT_EQ(Compared(ResultOf(500, 100, 10), repeated).verdict(), Verdict::kSame);
}

TEST(Compare, WhatDiffersBetweenTheServersIsListed) {
  json after = ResultOf(500, 100, 10);
  after["x_bulkhead"]["server"] = {{"tensor_parallel_size", 2}, {"epoch", "b"}};
  EXPECT_THAT(Compared(ResultOf(500, 100, 10), after).differences,
              ElementsAre("tensor_parallel_size: 1 -> 2"));
}

TEST(Compare, AnInvalidResultIsDoubted) {
  json after = ResultOf(500, 100, 10);
  after["x_bulkhead"]["why_invalid"] = {"the client was the limit"};
  after["x_bulkhead"]["interrupted"] = true;
  EXPECT_THAT(Compared(ResultOf(500, 100, 10), after).doubts,
              ElementsAre("the second result is marked invalid: the client was the limit",
                          "the second measurement was stopped early"));
}

TEST(Compare, WhatIsNoResultIsRefused) {
  for (const char* text : {"", "[]", "{\"completed\": 3}", "{\"x_bulkhead\": 4}",
                           "{\"x_bulkhead\": {\"format\": 2}}"}) {
    const absl::Status status = Compare(text, ResultOf(1, 1, 1).dump(), false).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << text;
    EXPECT_THAT(status.message(), HasSubstr("the first file is no result.json"));
  }
}

TEST(Sweep, TheFrontierHoldsWhatNobodyBeatsInBoth) {
  std::vector<SweepPoint> points(4);
  const double figures[4][2] = {{100, 50}, {300, 30}, {250, 30}, {300, 10}};
  for (int i = 0; i < 4; ++i) {
    points[i].name = "concurrency " + std::to_string(i);
    points[i].tokens_per_s = figures[i][0];
    points[i].tokens_per_s_per_user = figures[i][1];
  }
  FindFrontier(&points);
  EXPECT_TRUE(points[0].on_frontier);
  EXPECT_TRUE(points[1].on_frontier);
  EXPECT_FALSE(points[2].on_frontier);
  EXPECT_FALSE(points[3].on_frontier);
  EXPECT_THAT(SweepTable(points), HasSubstr("concurrency 3"));
  EXPECT_THAT(SweepPage(points), HasSubstr("Pareto frontier"));
  EXPECT_EQ(json::parse(SweepJson(points))["points"].size(), 4);
}

}  // namespace
}  // namespace bulkhead
