// The two loops of quantising weights at load, so that a backend can bring faster ones with the
// same bits. Plain: kernel sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

struct WeightRange {
  float least;  // 0 or below
  float most;   // 0 or above
  bool finite;  // all of them; else least and most mean nothing
};

struct WeightLoops {
  WeightRange (*range_of)(const float* weights, int64_t count);
  // codes[i] = weights[i] * inverse, clamped to +-1e6, rounded to nearest even, + zero, clamped to
  // [least, most]
  void (*encode)(const float* weights, int64_t count, float inverse, float zero, float least,
                 float most, uint8_t* codes);
};

}  // namespace bulkhead
