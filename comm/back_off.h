// BackOff: how a wait that can only look again and again spares the core. It looks without a break
// for a moment (if it may spin), yields for as long as a decode step's skew, then sleeps, longer
// and longer: 50 us at first, 1 ms while a step may still come, 5 ms when the group has been idle
// for a second.
#pragma once

#include <cstdint>

namespace bulkhead {

class BackOff {
 public:
  explicit BackOff(bool may_spin) : may_spin_(may_spin) {}
  // Between two looks.
  void Pause();

 private:
  bool may_spin_;
  int64_t begin_ns_ = 0;
  int64_t sleep_ns_ = 0;
};

}  // namespace bulkhead
