// Sums between devices in bf16: a partial sum rounded before it is sent, and the sum widened again.
#pragma once

#include <stdint.h>

#include "memory/cuda_kernel.h"

namespace bulkhead {

class CudaDriver;

namespace cuda {

inline constexpr int kRoundSumThreads = 256;
struct RoundSumParameters {
  const float* from = nullptr;  // [count], 16-byte aligned, as is `to`
  uint16_t* to = nullptr;       // [count], rounded to nearest even
  int64_t count = 0;
};
CudaKernelOf<RoundSumParameters> RoundSumKernel();

struct WidenSumParameters {
  const uint16_t* from = nullptr;
  float* to = nullptr;
  int64_t count = 0;
};
CudaKernelOf<WidenSumParameters> WidenSumKernel();

}  // namespace cuda

void RoundSum(CudaDriver& driver, const float* from, uint16_t* to, int64_t count);
void WidenSum(CudaDriver& driver, const uint16_t* from, float* to, int64_t count);

}  // namespace bulkhead
