// Numbers for the check of sums between GPUs at the start.
#pragma once

#include <cstdint>
#include <functional>

namespace bulkhead {

// Partial sums for the element-wise check of sums at start: integers whose sum stays below 2^24 for
// every supported group size, so that f32 adds them exactly in any order.
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

// Enqueues a kernel that writes (first + i) % period + offset to out[i], i < count, some
// microseconds after it has allowed the next kernel to start.
using WritePartialSumLate =
    std::function<void(float* out, int64_t count, int64_t first, int period, int offset)>;

}  // namespace bulkhead
