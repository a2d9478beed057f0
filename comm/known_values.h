// Partial sums for the element-wise check of sums at start: integers whose sum stays below 2^24 for
// every supported group size, so that f32 adds them exactly in any order.
#pragma once

#include <cstdint>

namespace bulkhead {

inline constexpr int kKnownPeriod = 1000;

// Element i of rank r's partial sum.
constexpr int KnownOffset(int r) { return r % 8; }
constexpr int64_t KnownValue(int64_t i, int r) { return i % kKnownPeriod + KnownOffset(r); }

// Element i of the sum of `size` ranks.
constexpr int64_t KnownSum(int64_t i, int64_t size) {
  const int64_t rest = size % 8;
  return i % kKnownPeriod * size + size / 8 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7) +
         rest * (rest - 1) / 2;
}

}  // namespace bulkhead
