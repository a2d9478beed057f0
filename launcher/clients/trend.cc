#include "launcher/clients/trend.h"

#include <algorithm>
#include <cmath>

namespace bulkhead {
namespace {

constexpr double kQuietShare = 0.1;
constexpr double kHighShare = 0.8;
constexpr double kDriftShare = 0.02;  // of the limit, from the first third to the last
constexpr double kCorrelation = 0.5;

double Mean(const std::vector<Sample>& samples, size_t begin, size_t end, double Sample::*value) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += samples[i].*value;
  return sum / static_cast<double>(end - begin);
}

// Pearson's; 0 if one of them never changes.
double Correlation(const std::vector<Sample>& samples) {
  const double level = Mean(samples, 0, samples.size(), &Sample::level);
  const double traffic = Mean(samples, 0, samples.size(), &Sample::traffic);
  double both = 0;
  double levels = 0;
  double traffics = 0;
  for (const Sample& sample : samples) {
    both += (sample.level - level) * (sample.traffic - traffic);
    levels += (sample.level - level) * (sample.level - level);
    traffics += (sample.traffic - traffic) * (sample.traffic - traffic);
  }
  return levels == 0 || traffics == 0 ? 0 : both / std::sqrt(levels * traffics);
}

}  // namespace

Trend FitTrend(const std::vector<Sample>& samples, double limit) {
  if (samples.size() < kMinSamples) return Trend::kTooShort;
  double least = samples[0].level;
  double most = samples[0].level;
  for (const Sample& sample : samples) {
    least = std::min(least, sample.level);
    most = std::max(most, sample.level);
  }
  if (least >= kHighShare * limit) return Trend::kHighFromStart;
  if (Correlation(samples) >= kCorrelation) return Trend::kFollowsTraffic;
  const size_t third = samples.size() / 3;
  const size_t size = samples.size();
  const double rise =
      Mean(samples, size - third, size, &Sample::level) - Mean(samples, 0, third, &Sample::level);
  const double more_traffic = Mean(samples, size - third, size, &Sample::traffic) -
                              Mean(samples, 0, third, &Sample::traffic);
  if (rise > kDriftShare * limit && more_traffic <= 0) return Trend::kDrifts;
  return most <= kQuietShare * limit ? Trend::kQuiet : Trend::kSteady;
}

std::string TrendText(Trend trend) {
  switch (trend) {
    case Trend::kTooShort:
      return "too few samples to tell";
    case Trend::kQuiet:
      return "always low";
    case Trend::kHighFromStart:
      return "high from the start: sized too small for this load, not leaking";
    case Trend::kFollowsTraffic:
      return "follows the traffic";
    case Trend::kDrifts:
      return "drifts: it rises while the traffic does not";
    case Trend::kSteady:
      return "steady";
  }
  return "";
}

}  // namespace bulkhead
