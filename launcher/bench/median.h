// The median of measured values. Pure.
#pragma once

#include <algorithm>
#include <vector>

namespace bulkhead {

// The middle value, for an even count the upper one; 0 if there are none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace bulkhead
