// What `doctor` shows of a server's histograms.
#pragma once

#include <cstdint>
#include <string>

#include "bulkhead/v1/histogram.pb.h"

namespace bulkhead {

// How many values it counts; 0 for one that is not well-formed.
uint64_t CountOf(const v1::Histogram& histogram);

// The value that a share `q` in (0, 1] of all is not above, taken as evenly spread in each bucket
// (histogram_quantile of Prometheus) but the first, which is wide: there it is the bucket's bound.
// The last bound for what is above it. There is at least one.
double QuantileOf(const v1::Histogram& histogram, double q);

// Rows for what has been counted; empty if nothing has.
std::string LatencyTable(const v1::RequestHistograms& histograms);

}  // namespace bulkhead
