// Clock offsets between the hosts of a group, to align their logs and traces.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"

namespace bulkhead {

// A rank's clock minus rank 0's when measured: within [offset - error, offset + error].
struct ClockOffset {
  double offset_us = 0;
  double error_us = 0;
};

// CLOCK_REALTIME.
int64_t RealtimeNanos();

// Collective. Offsets by rank; rank 0's is 0 +- 0. `clock_ns` is this rank's clock. No rank leaves
// a gather before all have entered it: a rank's clock on leaving is at most the gather's duration
// ahead of rank 0's on entering, and vice versa. The narrowest bounds of several rounds are used.
absl::StatusOr<std::vector<ClockOffset>> MeasureClockOffsets(
    GroupExchange& exchange, absl::Duration timeout, const std::function<int64_t()>& clock_ns);

}  // namespace bulkhead
