#include "comm/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "base/clock.h"

namespace bulkhead {
namespace {

constexpr int kSpins = 600;                      // about 30 us: a decode step's skew between ranks
constexpr int64_t kYieldNanos = 300'000;         // yield time before sleeping
constexpr int64_t kMaxSleepNanos = 100'000'000;  // longest single sleep
constexpr int64_t kNanosPerSecond = 1'000'000'000;

// Not a private futex: the word may be mapped by several processes.
void FutexWait(std::atomic<uint32_t>& word, uint32_t while_value, int64_t timeout_ns) {
  const timespec timeout = {timeout_ns / kNanosPerSecond, timeout_ns % kNanosPerSecond};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, while_value, &timeout, nullptr,
          0);
}

// One non-blocking check; kReached and kAborted end the wait.
bool Ended(const Signal& signal, uint32_t count, const std::atomic<uint32_t>& abort,
           WaitResult* end) {
  if (HasReached(signal.value.load(std::memory_order_acquire), count)) {
    *end = WaitResult::kReached;
    return true;
  }
  if (abort.load(std::memory_order_acquire) != 0) {
    *end = WaitResult::kAborted;
    return true;
  }
  return false;
}

WaitResult Sleep(Signal& signal, uint32_t count, const std::atomic<uint32_t>& abort,
                 int64_t deadline_ns) {
  // Registered before the value is read again, as Raise writes the value before it reads
  // `sleepers`: with sequentially consistent operations at least one side sees the other.
  signal.sleepers.fetch_add(1);
  WaitResult end = WaitResult::kDeadline;
  while (true) {
    const uint32_t value = signal.value.load();
    if (Ended(signal, count, abort, &end)) break;
    const int64_t left_ns =
        deadline_ns == kNoDeadline ? kMaxSleepNanos : deadline_ns - MonotonicNanos();
    if (left_ns <= 0) break;
    FutexWait(signal.value, value, std::min(left_ns, kMaxSleepNanos));
  }
  signal.sleepers.fetch_sub(1);
  return end;
}

}  // namespace

void Raise(Signal& signal, uint32_t count) {
  signal.value.store(count);
  if (signal.sleepers.load() != 0) WakeSleepers(signal);
}

void WakeSleepers(Signal& signal) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&signal.value), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

WaitResult WaitFor(Signal& signal, uint32_t count, const std::atomic<uint32_t>& abort,
                   const WaitLimits& limits) {
  WaitResult end;
  if (Ended(signal, count, abort, &end)) return end;
  for (int i = 0; limits.may_spin && i < kSpins; ++i) {
    __builtin_ia32_pause();
    if (Ended(signal, count, abort, &end)) return end;
  }
  const int64_t yield_until_ns = std::min(MonotonicNanos() + kYieldNanos, limits.deadline_ns);
  while (MonotonicNanos() < yield_until_ns) {
    sched_yield();
    if (Ended(signal, count, abort, &end)) return end;
  }
  return Sleep(signal, count, abort, limits.deadline_ns);
}

namespace {

constexpr int64_t kSpinNanos = 50'000;
constexpr int64_t kPollYieldNanos = 500'000;
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
  } else if (waited_ns < kPollYieldNanos) {
    sched_yield();
  } else {
    sleep_ns_ = std::clamp(2 * sleep_ns_, kShortestSleepNanos, kLongestSleepNanos);
    const timespec pause = {0, waited_ns < kIdleNanos ? sleep_ns_ : kIdleSleepNanos};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace bulkhead
