// Trend: classifies a metric over time. Pure.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

enum class Trend {
  kTooShort,        // fewer than kMinSamples samples
  kQuiet,           // never above a tenth of its limit
  kHighFromStart,   // always at least four fifths of its limit
  kFollowsTraffic,  // rises and falls with the traffic
  kDrifts,          // rises while the traffic does not
  kSteady,          // none of these
};
inline constexpr int kMinSamples = 5;

struct Sample {
  double level = 0;    // of the metric
  double traffic = 0;  // requests running and waiting at that moment
};

// `limit` > 0: reference for the level.
Trend FitTrend(const std::vector<Sample>& samples, double limit);

// A short explanation for operators.
std::string TrendText(Trend trend);

}  // namespace bulkhead
