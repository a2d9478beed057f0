#include "launcher/bench/serve/arrivals.h"

#include <cmath>
#include <random>

#include "base/check.h"

namespace bulkhead {
namespace {

double RateAt(const ArrivalOptions& options, int index, int count) {
  const double done = count > 1 ? static_cast<double>(index) / (count - 1) : 0;
  const double start = options.ramp_up_start_rps;
  const double end = options.ramp_up_end_rps;
  switch (options.ramp_up) {
    case RampUp::kLinear:
      return start + (end - start) * done;
    case RampUp::kExponential:
      return start * std::pow(end / start, done);
    case RampUp::kNone:
      break;
  }
  return options.request_rate;
}

}  // namespace

std::vector<double> ArrivalTimes(const ArrivalOptions& options, int count, uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (!options.open_loop() || count == 0) return times;
  BH_CHECK(options.burstiness > 0);
  std::mt19937_64 random(seed);
  const bool constant = std::isinf(options.burstiness);
  std::gamma_distribution<double> gap(constant ? 1 : options.burstiness, 1.0);
  double now = 0;
  for (int i = 0; i < count; ++i) {
    const double rate = RateAt(options, i, count);
    BH_CHECK(rate > 0);
    now += constant ? 1 / rate : gap(random) / (rate * options.burstiness);
    times[i] = now;
  }
  if (options.ramp_up != RampUp::kNone || !(now > 0)) return times;
  const double scale = count / options.request_rate / now;
  for (double& time : times) time *= scale;
  return times;
}

}  // namespace bulkhead
