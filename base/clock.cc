#include "base/clock.h"

#include <ctime>

namespace bulkhead {
namespace {

int64_t NanosOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicNanos() { return NanosOf(CLOCK_MONOTONIC); }

absl::Time MonotonicNow() { return absl::FromUnixNanos(MonotonicNanos()); }

int64_t ThreadCpuNanos() { return NanosOf(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace bulkhead
