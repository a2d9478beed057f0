#include "launcher/bench/serve/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bulkhead {
namespace {

constexpr int kCount = 20000;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct GapMoments {
  double mean = 0;
  double variation = 0;  // standard deviation over mean
};

GapMoments MomentsOf(const std::vector<double>& times) {
  double sum = 0, squares = 0, last = 0;
  for (const double time : times) {
    const double gap = time - last;
    EXPECT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    last = time;
  }
  const auto n = static_cast<double>(times.size());
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

ArrivalOptions Rate(double rate, double burstiness) {
  ArrivalOptions options;
  options.request_rate = rate;
  options.burstiness = burstiness;
  return options;
}

TEST(ArrivalTimes, APoissonProcessHasExponentialGaps) {
  const std::vector<double> times = ArrivalTimes(Rate(50, 1), kCount, 3);
  const GapMoments gaps = MomentsOf(times);
  EXPECT_NEAR(gaps.mean, 0.02, 1e-9);  // the last arrival is due at exactly count / rate
  EXPECT_NEAR(gaps.variation, 1, 0.03);
  // The share of gaps longer than the mean is 1 / e.
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > gaps.mean;
  EXPECT_NEAR(longer / static_cast<double>(kCount), std::exp(-1), 0.02);
}

TEST(ArrivalTimes, BurstinessIsTheShapeOfTheGammaDistribution) {
  // A gamma distribution of shape k varies by 1 / sqrt(k).
  EXPECT_NEAR(MomentsOf(ArrivalTimes(Rate(50, 4), kCount, 3)).variation, 0.5, 0.02);
  EXPECT_NEAR(MomentsOf(ArrivalTimes(Rate(50, 0.25), kCount, 3)).variation, 2, 0.1);
}

TEST(ArrivalTimes, InfiniteBurstinessIsConstant) {
  const std::vector<double> times = ArrivalTimes(Rate(4, kInf), 8, 3);
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_DOUBLE_EQ(times[i], 0.25 * static_cast<double>(i + 1));
  }
}

TEST(ArrivalTimes, WithoutARateAllAreDueAtOnce) {
  const ArrivalOptions options;
  EXPECT_FALSE(options.open_loop());
  EXPECT_EQ(ArrivalTimes(options, 3, 1), std::vector<double>({0, 0, 0}));
  EXPECT_TRUE(ArrivalTimes(Rate(1, 1), 0, 1).empty());
}

TEST(ArrivalTimes, TheSeedDecides) {
  EXPECT_EQ(ArrivalTimes(Rate(5, 1), 100, 7), ArrivalTimes(Rate(5, 1), 100, 7));
  EXPECT_NE(ArrivalTimes(Rate(5, 1), 100, 7), ArrivalTimes(Rate(5, 1), 100, 8));
}

TEST(ArrivalTimes, ARampGoesFromItsFirstRateToItsLast) {
  ArrivalOptions options = Rate(kInf, kInf);
  options.ramp_up = RampUp::kLinear;
  options.ramp_up_start_rps = 2;
  options.ramp_up_end_rps = 8;
  EXPECT_TRUE(options.open_loop());
  const std::vector<double> linear = ArrivalTimes(options, 3, 1);
  EXPECT_DOUBLE_EQ(linear[0], 1 / 2.0);
  EXPECT_DOUBLE_EQ(linear[1] - linear[0], 1 / 5.0);
  EXPECT_DOUBLE_EQ(linear[2] - linear[1], 1 / 8.0);
  options.ramp_up = RampUp::kExponential;
  const std::vector<double> exponential = ArrivalTimes(options, 3, 1);
  EXPECT_DOUBLE_EQ(exponential[1] - exponential[0], 1 / 4.0);
  EXPECT_DOUBLE_EQ(exponential[2] - exponential[1], 1 / 8.0);
}

}  // namespace
}  // namespace bulkhead
