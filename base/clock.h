// The clock for deadlines and durations: CLOCK_MONOTONIC, shared by all processes of a host,
// unaffected by changes of the wall-clock time.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace bulkhead {

int64_t MonotonicNanos();
// The same as an absl::Time for arithmetic such as MonotonicNow() + absl::Seconds(1); not a time of
// day.
absl::Time MonotonicNow();
// The CPU time of the calling thread: what else the machine does is not counted.
int64_t ThreadCpuNanos();

}  // namespace bulkhead
