// The two loops of quantising weights at load, so that a backend can have faster versions with the
// same bits. Plain C++: kernel sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

struct WeightRange {
  float min;    // 0 or below
  float max;    // 0 or above
  bool finite;  // all of them; otherwise min and max are undefined
};

struct WeightLoops {
  WeightRange (*range_of)(const float* weights, int64_t count);
  // codes[i] = weights[i] * inverse, clamped to +-1e6, rounded to nearest even, + zero, clamped to
  // [min, max]
  void (*encode)(const float* weights, int64_t count, float inverse, float zero, float min,
                 float max, uint8_t* codes);
};

}  // namespace bulkhead
