// HostCounters: what rank 0 holds for its clients, now and at the most since the start, against the
// quotas that were planned. Lock-free but for the reasons; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/service/error_counts.h"

namespace bulkhead {

class PeakCounter {
 public:
  void Add(int64_t amount) { Raise(now_.fetch_add(amount) + amount); }
  // False, and as it was, when that would pass `limit`.
  bool AddWithin(int64_t amount, int64_t limit) {
    int64_t now = now_.load();
    do {
      if (now + amount > limit) return false;
    } while (!now_.compare_exchange_weak(now, now + amount));
    Raise(now + amount);
    return true;
  }
  void Sub(int64_t amount) { now_.fetch_sub(amount); }
  void Set(int64_t value) {
    now_.store(value);
    Raise(value);
  }
  int64_t now() const { return now_.load(); }
  int64_t peak() const { return peak_.load(); }

 private:
  void Raise(int64_t value) {
    int64_t peak = peak_.load();
    while (value > peak && !peak_.compare_exchange_weak(peak, value)) {
    }
  }

  std::atomic<int64_t> now_{0};
  std::atomic<int64_t> peak_{0};
};

struct HostCounters {
  PeakCounter connections;
  PeakCounter open_calls;
  PeakCounter request_bytes;   // HostQuotas::request_bytes bounds it
  PeakCounter answer_bytes;    // HostQuotas::answer_bytes bounds it
  PeakCounter resident_bytes;  // of this process
  std::atomic<int64_t> resident_bytes_at_ready{0};
  ErrorCounts closed;  // connections that the server closed, by reason
  // New calls end with RESOURCE_EXHAUSTED (HOST_MEMORY) meanwhile.
  std::atomic<bool> refuses_calls{false};
};

}  // namespace bulkhead
