// GuardTotals: what all connections of one server hold together, against the quotas of the host.
// Used only by the guard's thread, except the counters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/host_counters.h"
#include "runtime/service/host_quotas.h"

namespace bulkhead {

// gRPC keeps holding a call that its client has reset until its threads process the reset.
inline constexpr absl::Duration kResetCallTime = absl::Seconds(1);

struct GuardTotals {
  // `access_control` may be null, or open to all: calls need nothing then, and are not decoded.
  GuardTotals(const HostQuotas& host_quotas, HostCounters* host_counters, ErrorCounts* call_errors,
              const AccessControl* access_control = nullptr)
      : quotas(host_quotas),
        counters(host_counters),
        errors(call_errors),
        access(access_control != nullptr && access_control->is_on() ? access_control : nullptr) {}

  const HostQuotas quotas;
  HostCounters* const counters;
  ErrorCounts* const errors;          // calls that the guard ended, by reason
  const AccessControl* const access;  // null: open to all
  bool refuses_calls = false;
  bool is_stopping = false;    // the server is to have no more calls
  int ends_left = 1000;        // calls that may be ended for their slowness until the next tick
  uint64_t seen_refusals = 0;  // of HostCounters::refused_claims; at the last tick
  std::deque<absl::Time> reset_calls;  // when each gives its slot back

  bool has_open_call() const {
    return !refuses_calls && counters->open_calls.now() < quotas.max_open_calls;
  }
  // Resets may hold a quarter of all slots; further ones wait.
  bool has_reset_slot() const {
    return static_cast<int64_t>(reset_calls.size()) < std::max(quotas.max_open_calls / 4, 1);
  }
  // Seven eighths of the slots are taken.
  bool is_short_of_calls() const {
    return counters->open_calls.now() >= quotas.max_open_calls - quotas.max_open_calls / 8;
  }
  // Calls without progress then end early.
  bool is_pressed() const { return bytes_are_wanted() || is_short_of_calls(); }
  // A body, of gRPC or HTTP, found no room in request_bytes since the last tick.
  bool bytes_are_wanted() const { return counters->refused_claims != seen_refusals; }
  void HoldSlot(absl::Time now) { reset_calls.push_back(now + kResetCallTime); }
  void ReturnSlots(absl::Time now) {
    while (!reset_calls.empty() && reset_calls.front() <= now) {
      reset_calls.pop_front();
      counters->open_calls.Sub(1);
    }
  }
};

}  // namespace bulkhead
