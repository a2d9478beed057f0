// Linear: a weight matrix as a backend holds it, and WeightSink: where a rank's rows of a weight
// go, so that shard/ can fill what kernels/ packs without either knowing the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/matrix.h"

namespace bulkhead {

// The shape of one rank's share of a weight.
//
// k_borders cuts the inputs [0, cols) into a power-of-two number of slices (1 for column-parallel
// products; 8, 4, 2 or 1 for row-parallel ones, the subtree that this rank owns): slice i is
// [k_borders[i], k_borders[i + 1]). Every output element is one chain of fused multiply-adds over
// ascending k per slice, from +0; the slices join as a balanced binary tree. An empty slice
// contributes nothing: as a term it is -0.0, the neutral element of IEEE addition.
struct LinearShape {
  int64_t rows = 0;  // outputs on this rank
  int64_t cols = 0;  // inputs on this rank
  DType dtype = DType::kF32;
  std::vector<int64_t> k_borders;  // {0, cols} for a product with one slice

  static LinearShape Whole(int64_t rows, int64_t cols, DType dtype) {
    return LinearShape{rows, cols, dtype, {0, cols}};
  }
};

struct Linear {
  LinearShape shape;
  std::byte* packed = nullptr;  // in the layout of the backend that made it; not owned
};

// Takes rows of one Linear in the checkpoint's number format and stores them in the Linear's.
// Calls for different rows may come from several threads at once.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // rows: [n, shape.cols], f32, bf16 or f16; they become rows [row_begin, row_begin + n).
  // Conversion rounds to nearest even; a value that f16 cannot hold becomes infinite.
  virtual void PutRows(int64_t row_begin, ConstMatrixView rows) = 0;
};

}  // namespace bulkhead
