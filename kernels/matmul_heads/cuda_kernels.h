// The kernels of MatMulHeads: their parameters and launch shapes.
#pragma once

#include <stdint.h>

#include "kernels/cuda/parameters.h"
#include "kernels/packing/cuda_layout.h"
#include "memory/cuda_kernel.h"
#include "memory/weight_format.h"

namespace bulkhead::cuda {

// out[t][i][at] = x[t][i step + input_at[at]], or without a map x[t][i step + at], as bf16 or f16;
// 0 if there is no such input. Grid {T, heads / kHeadWarps}.
struct GatherHeadsParameters {
  const void* x = nullptr;
  int64_t x_stride = 0;
  Numbers numbers = Numbers::kF32;  // of x
  int64_t x_step = 0;               // from a head's columns to the next head's
  const int32_t* input_at = nullptr;
  int heads = 0;
  int inputs = 0;
  int depth = 0;
  uint16_t* out = nullptr;  // [T][heads][depth]
};
CudaKernelOf<GatherHeadsParameters> GatherHeadsKernel(bool f16);

// out[t][i out_step + n] = sum over the depth of x[t][i] weight of head i [n].
struct HeadProductParameters {
  const uint16_t* x = nullptr;  // [T][heads][depth]: f16 for weights in f16, otherwise bf16
  int tokens = 0;
  int heads = 0;
  PackedWeight weight;     // of head 0
  int64_t head_bytes = 0;  // from a head's weight to the next head's
  OutRows out;
  int64_t out_step = 0;
  int parts = 0;  // as in LinearParameters
};
// As LinearKernel and GemmKernel (kernels/matmul/cuda_kernels.h), with the heads as the grid's z.
CudaKernelOf<HeadProductParameters> HeadLinearKernel(WeightFormat format, int token_tiles);
CudaKernelOf<HeadProductParameters> HeadGemmKernel(WeightFormat format);

}  // namespace bulkhead::cuda
