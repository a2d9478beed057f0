#include "runtime/engine/rank_figures.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(RankFiguresTest, FiguresTravelAsText) {
  RankFigures figures;
  figures.host = "node 7";
  figures.decode.Add(0.375, 0.125);
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
  for (const char* text : {"", "1 2 3", "1 x 3 4 5 6 7 8 9 10 11 12 13 host"}) {
    EXPECT_FALSE(RankFigures::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace bulkhead
