#include "launcher/bench/serve/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/exit_code.h"
#include "launcher/bench/serve/sweep.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json Of(double value, double half) {
  return {{"value", value}, {"low", value - half}, {"high", value + half}};
}

json ResultOf(double throughput, double ttft_ms, double half_ms) {
  return {{"completed", 300},
          {"failed", 0},
          {"x_bulkhead",
           {{"format", 1},
            {"why_invalid", json::array()},
            {"interrupted", false},
            {"workload", {{"input_len", 64}, {"repeats", 1}}},
            {"server", {{"tensor_parallel_size", 1}, {"epoch", "a"}}},
            {"runs", {{{"duration_s", 60}}, {{"duration_s", 60}}}},
            {"throughput", {{"output_tokens_per_s", Of(throughput, 10)}}},
            {"latencies", {{"ttft_ms", {{"mean", Of(ttft_ms, half_ms)}}}}}}}};
}

Comparison Compared(const json& before, const json& after, bool any_workload = false) {
  const auto comparison = Compare(before.dump(), after.dump(), any_workload);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.value_or(Comparison());
}

// What `bench compare` prints of two files with these texts.
std::string Printed(const json& before, const json& after) {
  const std::string path = ::testing::TempDir() + "/bench_compare_" + std::to_string(getpid());
  const CompareBenchOptions options = {path + ".before", path + ".after", false, false};
  std::ofstream(options.before) << before.dump();
  std::ofstream(options.after) << after.dump();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunCompareBench(options), absl::OkStatus());
  std::filesystem::remove(options.before);
  std::filesystem::remove(options.after);
  return ::testing::internal::GetCapturedStdout();
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
  const Comparison worse = Compared(ResultOf(500, 100, 10), ResultOf(500, 150, 10));
  EXPECT_EQ(worse.metrics[1].verdict, Verdict::kWorse);
  EXPECT_EQ(worse.verdict(), Verdict::kWorse);
}

TEST(Compare, BetterHereAndWorseThereIsMixed) {
  EXPECT_EQ(Compared(ResultOf(500, 100, 10), ResultOf(600, 150, 10)).verdict(), Verdict::kMixed);
}

TEST(Compare, OneRunEachCannotTellWhatMovesBetweenRuns) {
  json before = ResultOf(500, 100, 5);
  json after = ResultOf(500, 150, 5);
  before["x_bulkhead"]["runs"] = after["x_bulkhead"]["runs"] = {{{"duration_s", 60}}};
  EXPECT_EQ(Compared(before, after).verdict(), Verdict::kUnknown);
  EXPECT_EQ(Compared(before, before).verdict(), Verdict::kSame);
  EXPECT_THAT(Printed(before, after),
              AllOf(HasSubstr("verdict: cannot tell: one run each"), HasSubstr("--repeats")));
  after["x_bulkhead"]["runs"] = {{{"mean_ttft_ms", 149}}, {{"mean_ttft_ms", 151}}};
  EXPECT_EQ(Compared(before, after).verdict(), Verdict::kWorse);
}

TEST(Compare, AMedianMovesBetweenRunsAsItsMeanDoes) {
  const auto of_runs = [](double median, double first_mean, double second_mean) {
    json result = ResultOf(500, 100, 50);
    result["x_bulkhead"]["latencies"]["ttft_ms"] = {{"median", Of(median, 1)}};
    result["x_bulkhead"]["runs"] = {{{"mean_ttft_ms", first_mean}},
                                    {{"mean_ttft_ms", second_mean}}};
    return result;
  };
  EXPECT_EQ(Compared(of_runs(45, 80, 120), of_runs(53, 80, 120)).verdict(), Verdict::kSame);
  EXPECT_EQ(Compared(of_runs(45, 99, 101), of_runs(53, 99, 101)).verdict(), Verdict::kWorse);
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

// The refusal of `bad` as the second file.
std::string Refusal(const json& bad) {
  const absl::Status status = Compare(ResultOf(500, 100, 10).dump(), bad.dump(), true).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
  return std::string(status.message());
}

TEST(Compare, AResultThatKnowsNothingIsRefused) {
  EXPECT_THAT(Refusal({{"x_bulkhead", {{"format", 1}}}}), HasSubstr("workload is missing"));
  json bad = ResultOf(500, 100, 10);
  bad["x_bulkhead"]["workload"] = json::array({1});
  EXPECT_THAT(Refusal(bad), HasSubstr("workload is missing or no object"));
  bad = ResultOf(500, 100, 10);
  bad.erase("failed");
  EXPECT_THAT(Refusal(bad), HasSubstr("completed and failed requests are missing"));
  bad = ResultOf(500, 100, 10);
  bad["x_bulkhead"].erase("throughput");
  bad["x_bulkhead"]["latencies"] = json::array();
  EXPECT_THAT(Refusal(bad), HasSubstr("no metric in common"));
}

TEST(Compare, FiguresThatNobodyMeasuresAreRefused) {
  for (const double value : {-1.0, 1e308}) {
    json bad = ResultOf(500, 100, 10);
    bad["x_bulkhead"]["latencies"]["ttft_ms"]["mean"]["value"] = value;
    EXPECT_THAT(Refusal(bad), HasSubstr("second file's mean TTFT (ms)")) << value;
    bad = ResultOf(500, 100, 10);
    bad["x_bulkhead"]["runs"] = {{{"mean_ttft_ms", value}}};
    EXPECT_THAT(Refusal(bad), HasSubstr("mean_ttft_ms")) << value;
  }
  json bad = ResultOf(500, 100, 10);
  bad["x_bulkhead"]["latencies"]["ttft_ms"]["mean"] = {{"value", 5}, {"low", 6}, {"high", 4}};
  EXPECT_THAT(Refusal(bad), HasSubstr("low 6 above high 4"));
}

TEST(Compare, ALoadThatOneFileAloneNamesIsAnother) {
  json more = ResultOf(500, 100, 10);
  more["x_bulkhead"]["workload"]["burstiness"] = 2;
  const std::string plain = ResultOf(500, 100, 10).dump();
  EXPECT_THAT(Compare(more.dump(), plain, false).status().message(), HasSubstr("2 -> null"));
  EXPECT_THAT(Compare(plain, more.dump(), false).status().message(), HasSubstr("null -> 2"));
}

TEST(Compare, AMetricOfOneResultAloneIsNamed) {
  json after = ResultOf(500, 100, 10);
  after["x_bulkhead"]["latencies"].erase("ttft_ms");
  EXPECT_THAT(Compared(ResultOf(500, 100, 10), after).not_compared,
              ElementsAre("mean TTFT (ms): the second result does not have it"));
  EXPECT_THAT(Compared(after, ResultOf(500, 100, 10)).not_compared,
              ElementsAre("mean TTFT (ms): the first result does not have it"));
}

TEST(Compare, FailedRequestsAreADoubt) {
  json failing = ResultOf(500, 100, 10);
  failing["completed"] = 26;
  failing["failed"] = 2974;
  EXPECT_THAT(Compared(failing, ResultOf(500, 100, 10)).doubts,
              ElementsAre(HasSubstr("2974 of 3000 requests of the first measurement failed")));
  failing["completed"] = 0;
  EXPECT_THAT(Compared(ResultOf(500, 100, 10), failing).doubts,
              ElementsAre("no request of the second measurement completed"));
  failing["completed"] = 2990;
  failing["failed"] = 10;
  EXPECT_THAT(Compared(failing, failing).doubts, ElementsAre());
}

TEST(Compare, AReasonOfAnotherKindIsShown) {
  json after = ResultOf(500, 100, 10);
  after["x_bulkhead"]["why_invalid"] = {{{"code", 7}}};
  EXPECT_THAT(Compared(ResultOf(500, 100, 10), after).doubts,
              ElementsAre("the second result is marked invalid: {\"code\":7}"));
}

TEST(Compare, AChangeOfNothingHasNoSignAndNoBaseHasNoChange) {
  EXPECT_THAT(Printed(ResultOf(500, 100, 10), ResultOf(500, 99.999, 10)),
              AllOf(HasSubstr("+0.0 %"), Not(HasSubstr("-0.0 %"))));
  json none = ResultOf(500, 100, 10);
  none["x_bulkhead"]["throughput"]["output_tokens_per_s"] = {{"value", 0}, {"low", 0}, {"high", 0}};
  EXPECT_THAT(Printed(none, ResultOf(500, 100, 10)),
              ContainsRegex("output throughput.* - +better"));
}

TEST(Compare, ADirectoryIsAskedForItsResult) {
  CompareBenchOptions options;
  options.before = options.after = ::testing::TempDir();
  const absl::Status status = RunCompareBench(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(status.message(), HasSubstr("is a directory; name its result.json"));
}

TEST(Sweep, APointOfFailedOrUnfinishedRequestsIsNoFrontier) {
  std::vector<SweepPoint> points(4);
  for (SweepPoint& point : points) {
    point.result.summary.completed = 10;
    point.tokens_per_s = point.tokens_per_s_per_user = 900;
  }
  points[0].tokens_per_s = points[0].tokens_per_s_per_user = 100;
  points[1].result.summary.failed = 10;
  points[2].result.interrupted = true;
  points[3].result.summary.completed = 0;
  FindFrontier(&points);
  EXPECT_TRUE(points[0].on_frontier);
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(points[i].on_frontier) << i;
}

TEST(Sweep, TheFrontierHoldsWhatNobodyBeatsInBoth) {
  std::vector<SweepPoint> points(4);
  const double figures[4][2] = {{100, 50}, {300, 30}, {250, 30}, {300, 10}};
  for (int i = 0; i < 4; ++i) {
    points[i].name = "concurrency " + std::to_string(i);
    points[i].tokens_per_s = figures[i][0];
    points[i].tokens_per_s_per_user = figures[i][1];
    points[i].result.summary.completed = 10;
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
