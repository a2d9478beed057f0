// How host code turns views into what kernels take.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cuda/kernels.h"
#include "memory/matrix.h"

namespace bulkhead::cuda {

inline int NumBlocks(int64_t items, int64_t per_block) {
  return static_cast<int>(CeilDiv(items, per_block));
}

inline Rows RowsOf(MatrixView x) { return {x.F32(), x.row_stride()}; }
inline ConstRows RowsOf(ConstMatrixView x) { return {x.F32(), x.row_stride()}; }
inline OutRows OutRowsOf(MatrixView x) {
  BH_CHECK(x.dtype() != DType::kI32);
  const Numbers numbers = x.dtype() == DType::kF32    ? Numbers::kF32
                          : x.dtype() == DType::kBF16 ? Numbers::kBF16
                                                      : Numbers::kF16;
  return {x.data(), x.row_stride(), numbers};
}
// Whether rows are read and written four numbers at a time.
inline bool InFours(ConstMatrixView x) {
  return x.empty() || (x.cols() % 4 == 0 && x.row_stride() % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(x.data()) % (4 * DTypeBytes(x.dtype())) == 0);
}
inline const float* VectorOf(ConstMatrixView x) { return x.empty() ? nullptr : x.F32(); }

inline LaunchShape OneBlockPerRow(ConstMatrixView x) {
  return {.grid = {static_cast<int>(x.rows()), 1, 1}, .block = {kRowThreads, 1, 1}};
}

}  // namespace bulkhead::cuda
