// Trend: what kind of level a watched quantity has. Pure.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

enum class Trend {
  kTooShort,        // fewer than kLeastSamples samples
  kQuiet,           // never above a tenth of its limit
  kHighFromStart,   // at least four fifths of its limit all the time
  kFollowsTraffic,  // rises and falls with the traffic
  kDrifts,          // rises while the traffic does not
  kSteady,          // none of these
};
inline constexpr int kLeastSamples = 5;

struct Sample {
  double level = 0;    // of the quantity
  double traffic = 0;  // requests running and waiting at that moment
};

// `limit` > 0: what the level is measured against.
Trend TrendOf(const std::vector<Sample>& samples, double limit);

// What it means for an operator, in a few words.
std::string TrendText(Trend trend);

}  // namespace bulkhead
