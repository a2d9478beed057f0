// How far the clocks of the group's hosts are apart, so that logs and traces of several hosts can
// be laid side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"

namespace bulkhead {

// A rank's clock less rank 0's when it was measured: between offset - error and offset + error.
struct ClockOffset {
  double offset_us = 0;
  double error_us = 0;
};

// CLOCK_REALTIME.
int64_t RealtimeNanos();

// Collective: by rank; rank 0's is 0 +- 0. `clock_ns` is this rank's clock. Nobody leaves a gather
// before everybody has come to it: a rank's clock when it leaves is at most the gather's length
// ahead of rank 0's when that came, and the other way round. The narrowest of some rounds counts.
absl::StatusOr<std::vector<ClockOffset>> MeasureClockOffsets(
    GroupExchange& exchange, absl::Duration timeout, const std::function<int64_t()>& clock_ns);

}  // namespace bulkhead
