// Helpers of host code that turn views into kernel parameters, and launch kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cuda/parameters.h"
#include "kernels/cuda/registered_kernels.h"
#include "memory/cuda_driver.h"
#include "memory/matrix.h"

namespace bulkhead::cuda {

inline int NumBlocks(int64_t items, int64_t per_block) {
  return static_cast<int>(CeilDiv(items, per_block));
}

inline Rows RowsOf(MatrixView x) { return {x.F32(), x.row_stride()}; }
inline ConstRows RowsOf(ConstMatrixView x) { return {x.F32(), x.row_stride()}; }
inline Numbers NumbersOf(DType dtype) {
  BH_CHECK(dtype != DType::kI32);
  return dtype == DType::kF32    ? Numbers::kF32
         : dtype == DType::kBF16 ? Numbers::kBF16
                                 : Numbers::kF16;
}
inline OutRows OutRowsOf(MatrixView x) { return {x.data(), x.row_stride(), NumbersOf(x.dtype())}; }
// Whether rows are read and written four numbers at a time.
inline bool IsVec4(ConstMatrixView x) {
  return x.empty() || (x.cols() % 4 == 0 && x.row_stride() % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(x.data()) % (4 * DTypeBytes(x.dtype())) == 0);
}
// The same for rows of 16-bit numbers, eight at a time.
inline bool IsVec8(ConstMatrixView x) {
  return x.empty() || (x.cols() % 8 == 0 && x.row_stride() % 8 == 0 &&
                       reinterpret_cast<uintptr_t>(x.data()) % 16 == 0);
}
inline const float* VectorOf(ConstMatrixView x) { return x.empty() ? nullptr : x.F32(); }

inline LaunchShape OneBlockPerRow(ConstMatrixView x) {
  return {.grid = {static_cast<int>(x.rows()), 1, 1}, .block = {kRowThreads, 1, 1}};
}
// One warp per head and token.
inline LaunchShape OneWarpPerHead(int num_tokens, int heads) {
  return {.grid = {num_tokens, NumBlocks(heads, kHeadWarps), 1}, .block = {kHeadWarps * 32, 1, 1}};
}

// Loads all registered kernels that the device can run.
inline void LoadRegisteredKernels(CudaDriver& driver) {
  const int capability = driver.properties().capability();
  for (const CudaKernel& kernel : RegisteredKernels()) {
    if (kernel.only_capability == 0 || kernel.only_capability == capability) driver.Load(kernel);
  }
}

// One layer of the cache.
inline CacheParameters CacheOf(const StepIndex& index, const KvLayerView& kv) {
  const KvGeometry& g = kv.geometry;
  return {reinterpret_cast<unsigned char*>(kv.base),
          kv.block_stride,
          g.HeadBytes(),
          g.KeysBytes(),
          g.block_tokens,
          std::countr_zero(static_cast<unsigned>(g.block_tokens)),
          g.head_dim,
          index.seq_begin,
          index.seq_slot,
          index.position,
          index.token_seq,
          index.block_tables,
          index.block_table_stride,
          kv.key_scales,
          kv.value_scales};
}

}  // namespace bulkhead::cuda
