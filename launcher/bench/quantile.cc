#include "launcher/bench/quantile.h"

#include <algorithm>

#include "base/check.h"

namespace bulkhead {

double QuantileOfSorted(const std::vector<double>& sorted, double q) {
  BH_CHECK(q >= 0 && q <= 1);
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double QuantileOf(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return QuantileOfSorted(values, q);
}

}  // namespace bulkhead
