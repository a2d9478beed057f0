#include "launcher/bench/rank_figures.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RankFigures FiguresOf(const char* host, double compute_s, double comm_s) {
  RankFigures figures;
  figures.host = host;
  figures.decode.Add(compute_s + comm_s, comm_s);
  return figures;
}

TEST(RankFiguresTest, TheSlowestRankIsTheOneThatComputesLongest) {
  // Both steps take 4 s; rank 0 waits for rank 1.
  const std::vector<RankFigures> ranks = {FiguresOf("a", 1, 3), FiguresOf("b", 3, 1)};
  const Skew skew = SkewOf(ranks, &RankFigures::decode);
  EXPECT_EQ(skew.slowest_rank, 1);
  EXPECT_DOUBLE_EQ(skew.excess, 0.5);
  EXPECT_DOUBLE_EQ(CommShare(ranks, &RankFigures::decode), 0.5);
  EXPECT_THAT(RankTable(ranks),
              HasSubstr("decode: rank 1 (b) is the slowest, it computes 50.0 % longer"));
  EXPECT_THAT(RankTable(ranks), Not(HasSubstr("prefill: rank")));  // there was none
  const auto json = RanksJson(ranks);
  EXPECT_EQ(json["decode"]["slowest_rank"], 1);
  EXPECT_DOUBLE_EQ(json["ranks"][1]["decode"]["comm_share"], 0.25);
  EXPECT_DOUBLE_EQ(json["ranks"][0]["decode"]["compute_ms"], 1000);
}

TEST(RankFiguresTest, PlacementNamesEachHostAtTheRanksThatItHas) {
  EXPECT_EQ(PlacementText({"a"}), "rank 0 on a");
  EXPECT_EQ(PlacementText({"a", "a", "a", "b"}), "ranks 0-2 on a, 3 on b");
  EXPECT_EQ(PlacementText({"a", "b", "a"}), "ranks 0 on a, 1 on b, 2 on a");
}

TEST(RankFiguresTest, NothingMeasuredIsNoDivisionByZero) {
  EXPECT_EQ(SkewOf({{}, {}}, &RankFigures::prefill).excess, 0);
  EXPECT_EQ(CommShare({}, &RankFigures::prefill), 0);
  EXPECT_THAT(RankTable({{}}), Not(HasSubstr("slowest")));
}

TEST(RankFiguresTest, FiguresTravelAsText) {
  RankFigures figures = FiguresOf("node 7", 0.25, 0.125);
  figures.prefill.Add(2, 0.5);
  figures.prefill.Add(1, 0.25);
  figures.load_s = 1.5;
  figures.load_bytes = int64_t{5} << 40;
  figures.resident_bytes_peak = 77;
  figures.clock_offset_us = -1.5;
  figures.clock_error_us = 0.25;
  const absl::StatusOr<RankFigures> parsed = RankFigures::Parse(figures.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), figures.Serialize());
  EXPECT_EQ(parsed->host, "node 7");
  EXPECT_EQ(parsed->prefill.steps, 2);
  EXPECT_EQ(parsed->prefill.longest_s, 2);
  EXPECT_EQ(parsed->load_bytes, int64_t{5} << 40);
  EXPECT_EQ(parsed->clock_offset_us, -1.5);
  EXPECT_THAT(RankTable({*parsed}), HasSubstr("-1.5 +- 0.2"));
  for (const char* text : {"", "1 2 3", "1 x 3 4 5 6 7 8 9 10 11 12 13 host"}) {
    EXPECT_FALSE(RankFigures::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace bulkhead
