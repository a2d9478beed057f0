// Waiting between ranks that share memory. A Signal is a counter that one rank raises and others
// wait for. A wait spins briefly, then yields, then sleeps in a futex with a timed belt: an idle
// rank costs nothing, and a wake that is lost costs 100 ms at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace bulkhead {

// Lies in shared memory, zeroed; a cache line of its own.
struct alignas(64) Signal {
  std::atomic<uint32_t> value;     // counts up modulo 2^32; one rank alone writes it
  std::atomic<uint32_t> sleepers;  // ranks that may be asleep in the futex
  int64_t notes[2];                // what the writer says along with even and odd counts
};
static_assert(sizeof(Signal) == 64);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// Publishes `count`, and with it all that the caller wrote before; wakes those that sleep for it.
void Raise(Signal& signal, uint32_t count);

// Wakes sleepers to look again, although the count is the same.
void WakeSleepers(Signal& signal);

// True when `value` has reached `count`; they may be up to 2^31 apart.
inline bool HasReached(uint32_t value, uint32_t count) {
  return static_cast<int32_t>(value - count) >= 0;
}

enum class WaitResult { kReached, kAborted, kDeadline };

struct WaitLimits {
  bool may_spin = false;              // not where ranks x threads exceed the cores
  int64_t deadline_ns = kNoDeadline;  // of MonotonicNanos
};

// Waits until `signal` has reached `count`, or `abort` is not 0, or the deadline has passed.
WaitResult WaitFor(Signal& signal, uint32_t count, const std::atomic<uint32_t>& abort,
                   const WaitLimits& limits);

}  // namespace bulkhead
