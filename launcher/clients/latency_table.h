// What `doctor` shows of a server's histograms.
#pragma once

#include <cstdint>
#include <string>

#include "bulkhead/v1/histogram.pb.h"

namespace bulkhead {

// How many values it counts; 0 for one that is not well-formed.
uint64_t CountOf(const v1::Histogram& histogram);

// Rows for what has been counted; empty if nothing has.
std::string LatencyTable(const v1::RequestHistograms& histograms);

}  // namespace bulkhead
