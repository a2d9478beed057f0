#include "launcher/bench/scale_result.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ScaleRow RowOf(int ranks, int threads, double prefill, double decode) {
  ScaleRow row;
  row.ranks = ranks;
  row.planned = {true, 1000 * ranks, 0, "kv"};
  ScaleMeasured measured;
  measured.threads = threads;
  measured.cases = {{8, 128, prefill, decode}};
  measured.capacity = row.planned;
  measured.decode_comm_share = 0.25;
  measured.slowest_rank = ranks - 1;
  measured.hosts.assign(ranks, "a");
  row.measured = measured;
  return row;
}

TEST(ScaleResultTest, EfficiencyIsSpeedOverThreads) {
  const std::vector<ScaleRow> rows = {RowOf(2, 1, 100, 10), RowOf(8, 1, 300, 40)};
  const auto json = nlohmann::json::parse(ScaleJson(rows, "m", "v", "d"));
  const auto& measured = json["sizes"][1]["measured"]["cases"][0];
  EXPECT_DOUBLE_EQ(measured["prefill_speedup"], 3);
  EXPECT_DOUBLE_EQ(measured["prefill_efficiency"], 0.75);
  EXPECT_DOUBLE_EQ(measured["decode_efficiency"], 1);
  EXPECT_EQ(json["sizes"][1]["measured"]["kv_tokens"], json["sizes"][1]["planned"]["kv_tokens"]);
  EXPECT_THAT(ScaleTable(rows), HasSubstr("75.0 %"));
  EXPECT_THAT(ScaleTable(rows), HasSubstr("ranks 0-7 on a"));
}

TEST(ScaleResultTest, ASizeThatDoesNotFitHasNoMeasurement) {
  ScaleRow small;
  small.ranks = 1;
  small.planned = {false, 0, 0, "weights"};
  const std::string table = ScaleTable({small, RowOf(2, 1, 100, 0)});
  EXPECT_THAT(table, HasSubstr("does not fit"));
  EXPECT_THAT(table, HasSubstr("rank 0, weights"));
  EXPECT_THAT(table, HasSubstr("1.00x"));  // the first one that was measured is the base
  const auto json = nlohmann::json::parse(ScaleJson({small}, "m", "v", "d"));
  EXPECT_TRUE(json["sizes"][0]["measured"].is_null());
  EXPECT_THAT(ScaleTable({small}), Not(HasSubstr("tokens/s")));
}

TEST(ScaleResultTest, WhatChildrenPrintIsReadAndAnythingElseRefused) {
  const auto planned =
      ParsePlanned(R"({"fits": true, "kv_tokens": 48, "binding": {"rank": 3, "term": "logits"}})");
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->kv_tokens, 48);
  EXPECT_EQ(planned->binding_rank, 3);
  EXPECT_EQ(planned->binding_term, "logits");
  const auto measured = ParseMeasured(R"({
      "threads": 2,
      "memory": {"report": {"fits": true, "kv_tokens": 64, "binding": {"rank": 1, "term": "kv"}}},
      "group": {"ranks": [{"host": "a"}, {"host": "b"}], "prefill": {"comm_share": 0.5},
                "decode": {"comm_share": 0.25, "slowest_rank": 1, "slowest_excess": 0.125}},
      "cases": [{"batch_size": 8, "input_len": 128, "prefill_tokens_per_s": 5,
                 "decode_tokens_per_s": 7}]})");
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->threads, 2);
  EXPECT_EQ(measured->capacity.kv_tokens, 64);
  EXPECT_EQ(measured->decode_comm_share, 0.25);
  EXPECT_EQ(measured->prefill_comm_share, 0.5);
  EXPECT_THAT(measured->hosts, ElementsAre("a", "b"));
  ASSERT_EQ(measured->cases.size(), 1U);
  EXPECT_EQ(measured->cases[0].decode_tokens_per_s, 7);
  for (const char* text : {"", "{}", "READY", "[1]"}) {
    EXPECT_FALSE(ParsePlanned(text).ok()) << text;
    EXPECT_FALSE(ParseMeasured(text).ok()) << text;
  }
}

}  // namespace
}  // namespace bulkhead
