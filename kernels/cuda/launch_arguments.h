// How host code turns views into what kernels take.
#pragma once

#include <cstdint>

#include "kernels/cuda/kernels.h"
#include "memory/matrix.h"

namespace bulkhead::cuda {

inline int CeilDiv(int64_t x, int64_t y) { return static_cast<int>((x + y - 1) / y); }

inline Rows RowsOf(MatrixView x) { return {x.F32(), x.row_stride()}; }
inline ConstRows RowsOf(ConstMatrixView x) { return {x.F32(), x.row_stride()}; }
inline const float* VectorOf(ConstMatrixView x) { return x.empty() ? nullptr : x.F32(); }

inline LaunchShape OneBlockPerRow(ConstMatrixView x) {
  return {.grid = {static_cast<int>(x.rows()), 1, 1}, .block = {kRowThreads, 1, 1}};
}

}  // namespace bulkhead::cuda
