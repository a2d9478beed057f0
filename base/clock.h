// The clock that deadlines and durations are measured with: CLOCK_MONOTONIC, the same for all
// processes of a host, whatever is done to its time of day.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace bulkhead {

int64_t MonotonicNanos();
// The same as a time to count with, such as MonotonicNow() + absl::Seconds(1): no time of day.
absl::Time MonotonicNow();

}  // namespace bulkhead
