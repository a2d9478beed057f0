// HostCounters: what rank 0 holds for its clients, current and peak, against the planned quotas.
// Lock-free except for the reasons; any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/service/error_counts.h"

namespace bulkhead {

class PeakCounter {
 public:
  void Add(int64_t amount) { Raise(now_.fetch_add(amount) + amount); }
  // False, with no change, if that would exceed `limit`.
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
  // Claims `more` of request_bytes for a body that holds `held`. False if others hold too many:
  // bodies of more than 64 KiB leave an eighth to smaller ones. A single body is always accepted.
  bool TakeRequestBytes(int64_t more, int64_t held, int64_t limit) {
    constexpr int64_t kSmallBytes = int64_t{64} << 10;
    if (request_bytes.AddWithin(more, held + more <= kSmallBytes ? limit : limit - limit / 8)) {
      return true;
    }
    if (request_bytes.now() > held) {
      ++refused_claims;
      return false;
    }
    request_bytes.Add(more);
    return true;
  }

  PeakCounter connections;
  PeakCounter http_connections;     // bounded by HostQuotas::max_http_connections
  PeakCounter metrics_connections;  // of --metrics-port: at most kMetricsConnections
  PeakCounter open_calls;
  PeakCounter request_bytes;  // bounded by HostQuotas::request_bytes
  // Claims on request_bytes. While it grows, bodies wait for room: both front ends end slow ones.
  std::atomic<uint64_t> refused_claims{0};
  PeakCounter answer_bytes;    // bounded by HostQuotas::answer_bytes
  PeakCounter resident_bytes;  // of this process
  std::atomic<int64_t> resident_bytes_at_ready{0};
  ErrorCounts closed;  // connections closed by the server, by reason
};

}  // namespace bulkhead
