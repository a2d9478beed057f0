#include "launcher/bench/quantile.h"

#include <algorithm>

#include "memory/check.h"

namespace bulkhead {

double QuantileOf(std::vector<double> values, double q) {
  BH_CHECK(q >= 0 && q <= 1);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace bulkhead
