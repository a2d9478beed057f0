// Numbers for the check of sums between GPUs at the start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "memory/matrix.h"

namespace bulkhead {

// Partial sums for the element-wise check of sums at start: integers that are added exactly in any
// order.
struct KnownNumbers {
  int period = 1000;
  int offsets = 8;  // rank r adds r % offsets

  constexpr int Offset(int r) const { return r % offsets; }
  // Element i of rank r's partial sum.
  constexpr int64_t Value(int64_t i, int r) const { return i % period + Offset(r); }
  // Element i of the sum of `size` ranks.
  constexpr int64_t Sum(int64_t i, int64_t size) const {
    const int64_t rest = size % offsets;
    return i % period * size + size / offsets * (offsets * (offsets - 1) / 2) +
           rest * (rest - 1) / 2;
  }
};

// f32 has all integers up to 2^24, which no supported group size reaches; bf16 only up to 2^8: with
// more ranks numbers repeat after fewer elements, and above 512 ranks all are 0.
constexpr KnownNumbers KnownNumbersIn(DType dtype, int size) {
  if (dtype == DType::kF32) return {};
  // Odd, so that parts of a power of two elements begin differently.
  return {.period = std::max(1, (256 / size - 1) | 1), .offsets = size > 512 ? 1 : 2};
}

// Enqueues a kernel that writes (first + i) % period + offset to out[i], i < count, some
// microseconds after it has allowed the next kernel to start.
using WritePartialSumLate =
    std::function<void(float* out, int64_t count, int64_t first, int period, int offset)>;

}  // namespace bulkhead
