// Quantiles of measured values. Pure.
#pragma once

#include <vector>

namespace bulkhead {

// The value below which the share `q` in [0, 1] of `values` lies, linear between neighbours; 0 of
// none.
double QuantileOf(std::vector<double> values, double q);
// The same of values that ascend.
double QuantileOfSorted(const std::vector<double>& sorted, double q);

}  // namespace bulkhead
