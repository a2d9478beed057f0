// When the requests of a benchmark are due. Pure: the same seed gives the same times.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace bulkhead {

enum class RampUp { kNone, kLinear, kExponential };

struct ArrivalOptions {
  // Requests per second; infinity: all are due at once, or whenever one of max_concurrency ends.
  double request_rate = std::numeric_limits<double>::infinity();
  // The shape of the gamma distribution that gaps are drawn from: 1 is a Poisson process, less
  // comes in bursts, infinity is one request every 1/rate seconds.
  double burstiness = 1;
  // With a ramp the rate goes from start to end over the requests, and request_rate does not count.
  RampUp ramp_up = RampUp::kNone;
  double ramp_up_start_rps = 0;
  double ramp_up_end_rps = 0;

  bool open_loop() const {
    return ramp_up != RampUp::kNone || request_rate < std::numeric_limits<double>::infinity();
  }
};

// Seconds since the begin, ascending, one for each of `count` requests. Without a ramp the last one
// is due at exactly count / request_rate: runs of different seeds offer the same load.
std::vector<double> ArrivalTimes(const ArrivalOptions& options, int count, uint64_t seed);

}  // namespace bulkhead
