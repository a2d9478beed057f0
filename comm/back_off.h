// BackOff: for waits that can only poll. Spins briefly (if allowed), yields for the duration of a
// decode step's skew, then sleeps with increasing intervals: 50 us at first, 1 ms while a step may
// still arrive, 5 ms once the group has been idle for a second.
#pragma once

#include <cstdint>

namespace bulkhead {

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
