// The floating point mode in which everything is computed whose bits are promised.
#pragma once

#include <xmmintrin.h>

namespace bulkhead {

// The default mode, for as long as this lives: all exceptions masked, rounding to nearest even, no
// flushing of denormals. A library may have set another one for its caller's thread.
class DefaultFloatMode {
 public:
  DefaultFloatMode() { _mm_setcsr(0x1F80); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
  ~DefaultFloatMode() { _mm_setcsr(before_); }

 private:
  const unsigned before_ = _mm_getcsr();
};

}  // namespace bulkhead
