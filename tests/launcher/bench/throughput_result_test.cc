#include "launcher/bench/throughput_result.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ThroughputResultTest, DecodeCountsOnlyWhileAllGenerate) {
  // Until second 2 the first one decodes alone, from second 4 on the second one does.
  const ThroughputRun run = RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 5, 6}}}, 20);
  EXPECT_DOUBLE_EQ(run.prefill_tokens_per_s, 10);
  EXPECT_DOUBLE_EQ(*run.decode_tokens_per_s, 2);  // four tokens in (2, 4]
  EXPECT_DOUBLE_EQ(run.total_tokens_per_s, 29.0 / 6);
}

TEST(ThroughputResultTest, WhereSequencesNeverAllRanTogetherTheRateIsThatOfTheWholeRun) {
  // Two tokens behind the first ones, in the time from second 1 to 4.
  EXPECT_DOUBLE_EQ(*RunOf({{{1, 2}}, {{3, 4}}}, 20).decode_tokens_per_s, 2.0 / 3);
}

TEST(ThroughputResultTest, OnlyWhereNoTokenFollowsTheFirstOnesThereIsNoDecodeRate) {
  EXPECT_FALSE(RunOf({{{1}}, {{1}}}, 20).decode_tokens_per_s.has_value());
  EXPECT_EQ(RunOf({}, 20).total_tokens_per_s, 0);
}

TEST(ThroughputResultTest, TheLogTellsNoDecodeRateThatWasNotMeasured) {
  const ThroughputCase apart = {2, 10, 1, {RunOf({{{1}}, {{3}}}, 20)}};
  EXPECT_EQ(
      LastRunText(apart),
      "batch 2, 10 -> 1: prefill 6.7 tokens/s, decode - (no token behind the first ones) (last "
      "of 1 runs)");
  const ThroughputCase together = {2, 10, 4, {RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 5, 6}}}, 20)}};
  EXPECT_THAT(LastRunText(together), HasSubstr("decode 2.0 tokens/s"));
}

TEST(ThroughputResultTest, LatencyIsOfFirstTokensAndOfStepsWhileAllGenerate) {
  // The gap from 1 to 2 is before the second sequence has begun, that from 4 to 7 behind the first.
  const ThroughputRun run = RunOf({{{1, 2, 3, 4}}, {{2, 3, 4, 7}}}, 20);
  EXPECT_THAT(run.first_token_s, ElementsAre(1, 2));
  EXPECT_THAT(run.step_s, ElementsAre(1, 1, 1, 1));
  ThroughputCase one{2, 10, 4, {run}};
  ThroughputFacts facts;
  facts.capacity_json = "{}";
  const auto json = nlohmann::json::parse(ThroughputJson(facts, {one}))["cases"][0];
  EXPECT_EQ(json["first_token"]["p50_ms"], 1500);
  EXPECT_EQ(json["step"]["count"], 4);
  EXPECT_EQ(json["step"]["p99_ms"], 1000);
}

TEST(ThroughputResultTest, TableAndJsonSayTheSame) {
  ThroughputCase one{8, 128, 64, {}};
  one.runs = {{100, 10.0, 50}, {300, 30.0, 70}, {200, 20.0, 60}};
  EXPECT_THAT(ThroughputTable({}, {one}), HasSubstr("200.0 (100.0 - 300.0)"));
  ThroughputFacts facts;
  facts.capacity_json = "{\"fits\": true}";
  const auto json = nlohmann::json::parse(ThroughputJson(facts, {one}));
  EXPECT_EQ(json["cases"][0]["decode_tokens_per_s"], 20.0);
  EXPECT_EQ(json["cases"][0]["runs"].size(), 3U);
  EXPECT_EQ(json["memory"]["report"]["fits"], true);
  one.runs = {{100, std::nullopt, 50}};
  EXPECT_TRUE(nlohmann::json::parse(
                  ThroughputJson(facts, {one}))["cases"][0]["runs"][0]["decode_tokens_per_s"]
                  .is_null());
}

}  // namespace
}  // namespace bulkhead
