// Waits between ranks that share memory. A Signal is a counter that one rank raises and others wait
// for. A wait spins briefly, then yields, then sleeps in a futex with a timeout: an idle rank uses
// no CPU, and a lost wake-up costs at most 100 ms. BackOff is for waits that can only poll.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace bulkhead {

// In shared memory, initially zero; a cache line of its own.
struct alignas(64) Signal {
  std::atomic<uint32_t> value;     // counts modulo 2^32; written by one rank only
  std::atomic<uint32_t> sleepers;  // ranks that may be asleep in the futex
  int64_t notes[2];                // the writer's annotations for even and odd counts
};
static_assert(sizeof(Signal) == 64);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// Publishes `count`, and with it all earlier writes of the caller; wakes its waiters.
void Raise(Signal& signal, uint32_t count);

// Wakes sleepers to check again although the count is unchanged.
void WakeSleepers(Signal& signal);

// True if `value` has reached `count`; they may differ by less than 2^31.
inline bool HasReached(uint32_t value, uint32_t count) {
  return static_cast<int32_t>(value - count) >= 0;
}

enum class WaitResult { kReached, kAborted, kDeadline };

struct WaitLimits {
  bool may_spin = false;              // false if ranks x threads exceed the cores
  int64_t deadline_ns = kNoDeadline;  // of MonotonicNanos
};

// Waits until `signal` has reached `count`, `abort` is not 0, or the deadline has passed.
WaitResult WaitFor(Signal& signal, uint32_t count, const std::atomic<uint32_t>& abort,
                   const WaitLimits& limits);

// Spins briefly (if allowed), yields for the duration of a decode step's skew, then sleeps with
// increasing intervals: 50 us at first, 1 ms while a step may still arrive, 5 ms once the group has
// been idle for a second.
class BackOff {
 public:
  explicit BackOff(bool may_spin) : may_spin_(may_spin) {}
  // Call between two polls.
  void Pause();

 private:
  bool may_spin_;
  int64_t begin_ns_ = 0;
  int64_t sleep_ns_ = 0;
};

}  // namespace bulkhead
