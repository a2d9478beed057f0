#include "launcher/bench/serve/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bulkhead {
namespace {

std::vector<Observation> Independent(const std::vector<double>& values) {
  std::vector<Observation> observations;
  for (size_t i = 0; i < values.size(); ++i) {
    observations.push_back({values[i], static_cast<int>(i)});
  }
  return observations;
}

std::vector<double> Normal(int count, double mean, double deviation, int seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  std::vector<double> values(count);
  for (double& value : values) value = draw(random);
  return values;
}

TEST(Statistics, APercentileWantsTenObservationsBeyondIt) {
  EXPECT_EQ(LeastCount(50), 20);
  EXPECT_EQ(LeastCount(90), 100);
  EXPECT_EQ(LeastCount(95), 200);
  EXPECT_EQ(LeastCount(99), 1000);
  EXPECT_EQ(LeastCount(99.9), 10000);
  EXPECT_EQ(LeastCount(5), 200);
  const Distribution values = Describe(Independent(Normal(999, 0, 1, 1)), {90, 99});
  EXPECT_TRUE(values.percentiles[0].estimate.has_value());
  EXPECT_FALSE(values.percentiles[1].estimate.has_value());
  EXPECT_TRUE(
      Describe(Independent(Normal(1000, 0, 1, 1)), {99}).percentiles[0].estimate.has_value());
}

TEST(Statistics, DescribesWhatItIsGiven) {
  const Distribution values = Describe(Independent({3, 1, 2, 6}), {});
  EXPECT_EQ(values.count, 4);
  EXPECT_DOUBLE_EQ(values.mean.value, 3);
  EXPECT_DOUBLE_EQ(values.median.value, 2.5);
  EXPECT_DOUBLE_EQ(values.std_dev, std::sqrt(3.5));
  EXPECT_DOUBLE_EQ(values.min, 1);
  EXPECT_DOUBLE_EQ(values.max, 6);
  EXPECT_LE(values.mean.low, values.mean.value);
  EXPECT_GE(values.mean.high, values.mean.value);
  EXPECT_EQ(Describe({}, {99}).count, 0);
}

TEST(Statistics, TheIntervalOfAMeanIsThatOfTheNormalApproximation) {
  const Distribution values = Describe(Independent(Normal(2000, 10, 3, 5)), {90});
  const double half = 1.96 * values.std_dev / std::sqrt(2000);
  EXPECT_NEAR(values.mean.high - values.mean.value, half, 0.15 * half);
  EXPECT_NEAR(values.mean.value - values.mean.low, half, 0.15 * half);
  // The 90th percentile's standard error is sqrt(p (1 - p) / n) / density.
  const double density = std::exp(-0.5 * 1.2816 * 1.2816) / std::sqrt(2 * M_PI) / 3;
  const double error = std::sqrt(0.09 / 2000) / density;
  const Estimate p90 = *values.percentiles[0].estimate;
  EXPECT_NEAR((p90.high - p90.low) / 2, 1.96 * error, 0.35 * 1.96 * error);
}

TEST(Statistics, IntervalsHoldTheTruthAboutNineteenTimesInTwenty) {
  int held = 0;
  constexpr int kTrials = 300;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Estimate mean = MeanOf(Normal(60, 4, 2, 100 + trial));
    held += mean.low <= 4 && 4 <= mean.high;
  }
  EXPECT_GT(held, 0.90 * kTrials);
  EXPECT_LT(held, 0.985 * kTrials);
}

TEST(Statistics, TokensOfOneRequestAreNotIndependent) {
  // 100 requests of 50 equal tokens say as much as 100 values, not as 5000.
  const std::vector<double> levels = Normal(100, 10, 2, 9);
  std::vector<Observation> clustered, flat;
  for (int request = 0; request < 100; ++request) {
    for (int token = 0; token < 50; ++token) {
      clustered.push_back({levels[request], request});
      flat.push_back({levels[request], request * 50 + token});
    }
  }
  const Estimate honest = Describe(clustered, {}).mean;
  const Estimate vain = Describe(flat, {}).mean;
  const Estimate expected = MeanOf(levels);
  EXPECT_NEAR(honest.high - honest.low, expected.high - expected.low,
              0.15 * (expected.high - expected.low));
  EXPECT_GT(honest.high - honest.low, 5 * (vain.high - vain.low));
}

TEST(Statistics, ClustersMayHaveGapsInTheirNumbers) {
  const Distribution values = Describe({{1, 7}, {3, 900}}, {});
  EXPECT_DOUBLE_EQ(values.mean.value, 2);
  EXPECT_DOUBLE_EQ(values.mean.low, 1);
  EXPECT_DOUBLE_EQ(values.mean.high, 3);
}

TEST(Statistics, TheSameObservationsGiveTheSameInterval) {
  const std::vector<double> values = Normal(50, 1, 1, 2);
  EXPECT_EQ(MeanOf(values).low, MeanOf(values).low);
  EXPECT_EQ(MeanOf({}).value, 0);
}

TEST(Statistics, ADifferenceCountsInUnitsOfBothIntervals) {
  EXPECT_DOUBLE_EQ(DifferenceInIntervals({10, 7, 13}, {15, 11, 19}), 1);
  EXPECT_DOUBLE_EQ(DifferenceInIntervals({10, 7, 13}, {5, 1, 9}), -1);
  EXPECT_EQ(DifferenceInIntervals({10, 10, 10}, {10, 10, 10}), 0);
  EXPECT_TRUE(std::isinf(DifferenceInIntervals({10, 10, 10}, {11, 11, 11})));
}

}  // namespace
}  // namespace bulkhead
