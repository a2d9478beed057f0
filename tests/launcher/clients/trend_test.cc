#include "launcher/clients/trend.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

std::vector<Sample> Levels(const std::vector<double>& levels, const std::vector<double>& traffic) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < levels.size(); ++i) {
    samples.push_back({levels[i], traffic[i % traffic.size()]});
  }
  return samples;
}

TEST(TrendTest, TellsWhatIsSizedTooSmallFromWhatFollowsTrafficAndFromWhatDrifts) {
  EXPECT_EQ(FitTrend(Levels({90, 95, 92, 99, 91, 90}, {5}), 100), Trend::kHighFromStart);
  EXPECT_EQ(FitTrend(Levels({10, 60, 20, 90, 10, 50}, {1, 6, 2, 9, 1, 5}), 100),
            Trend::kFollowsTraffic);
  EXPECT_EQ(FitTrend(Levels({30, 32, 35, 38, 41, 44}, {5, 4, 5, 4, 5, 4}), 100), Trend::kDrifts);
  EXPECT_EQ(FitTrend(Levels({50, 50, 50, 50, 50, 50}, {1, 9, 3}), 100), Trend::kSteady);
  EXPECT_EQ(FitTrend(Levels({3, 2, 3, 2, 3, 2}, {0}), 100), Trend::kQuiet);
}

TEST(TrendTest, RisingWithRisingTrafficIsNoDrift) {
  EXPECT_EQ(FitTrend(Levels({10, 20, 30, 40, 50, 60}, {1, 2, 3, 4, 5, 6}), 100),
            Trend::kFollowsTraffic);
}

TEST(TrendTest, FewSamplesTellNothing) {
  EXPECT_EQ(FitTrend({}, 100), Trend::kTooShort);
  EXPECT_EQ(FitTrend(Levels({99, 99, 99, 99}, {1}), 100), Trend::kTooShort);
}

}  // namespace
}  // namespace bulkhead
