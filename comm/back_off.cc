#include "comm/back_off.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

constexpr int64_t kSpinNanos = 50'000;
constexpr int64_t kYieldNanos = 500'000;
constexpr int64_t kShortestSleepNanos = 50'000;
constexpr int64_t kLongestSleepNanos = 1'000'000;
constexpr int64_t kIdleNanos = 1'000'000'000;
constexpr int64_t kIdleSleepNanos = 5'000'000;

}  // namespace

void BackOff::Pause() {
  const int64_t now_ns = MonotonicNanos();
  if (begin_ns_ == 0) begin_ns_ = now_ns;
  const int64_t waited_ns = now_ns - begin_ns_;
  if (may_spin_ && waited_ns < kSpinNanos) {
    __builtin_ia32_pause();
  } else if (waited_ns < kYieldNanos) {
    sched_yield();
  } else {
    sleep_ns_ = std::clamp(2 * sleep_ns_, kShortestSleepNanos, kLongestSleepNanos);
    const timespec pause = {0, waited_ns < kIdleNanos ? sleep_ns_ : kIdleSleepNanos};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace bulkhead
