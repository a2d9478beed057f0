// When the requests of a benchmark are due. Pure: the same seed gives the same times.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

// Seconds since the start, ascending, one for each of `count` requests. Without a ramp the last one
// is due at exactly count / request_rate: runs of different seeds offer the same load.
std::vector<double> ArrivalTimes(const ArrivalOptions& options, int count, uint64_t seed);

}  // namespace bulkhead
