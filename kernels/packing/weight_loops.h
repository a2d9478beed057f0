// The two loops of quantising weights at load, so that a backend can have faster ones with the
// same bits. Plain: kernel sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

struct WeightRange {
  float min;    // 0 or below
  float max;    // 0 or above
  bool finite;  // all of them; else min and max mean nothing
};

struct WeightLoops {
  WeightRange (*range_of)(const float* weights, int64_t count);
  // codes[i] = weights[i] * inverse, clamped to +-1e6, rounded to nearest even, + zero, clamped to
  // [min, max]
  void (*encode)(const float* weights, int64_t count, float inverse, float zero, float min,
                 float max, uint8_t* codes);
};

}  // namespace bulkhead
