#include "kernels/cuda/round_sum.h"

#include "base/arithmetic.h"
#include "intrinsics.h"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"
#include "memory/cuda_driver.h"

namespace bulkhead {
namespace cuda {
namespace {

// Per thread. Memory-bound: 6 bytes per number in either direction.
constexpr int kNumbers = 8;

BH_DEVICE int64_t FirstOfThread() {
  return (int64_t{int(blockIdx.x)} * kRoundSumThreads + int(threadIdx.x)) * kNumbers;
}

BH_KERNEL(kRoundSumThreads) Round(RoundSumParameters p) {
  GridDependencySynchronize();
  const int64_t at = FirstOfThread();
  if (at + kNumbers <= p.count) {
    const Floats4 a = LoadFour(p.from + at);
    const Floats4 b = LoadFour(p.from + at + 4);
    StoreVector(p.to + at, Words4{{Bf16Pair(a.v[0], a.v[1]), Bf16Pair(a.v[2], a.v[3]),
                                   Bf16Pair(b.v[0], b.v[1]), Bf16Pair(b.v[2], b.v[3])}});
  } else {
    for (int64_t i = at; i < p.count; ++i) p.to[i] = Bf16OfF32(p.from[i]);
  }
}

BH_KERNEL(kRoundSumThreads) Widen(WidenSumParameters p) {
  GridDependencySynchronize();
  const int64_t at = FirstOfThread();
  if (at + kNumbers <= p.count) {
    const auto pairs = LoadVector<Words4>(p.from + at);
    Floats4 x[2];
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i / 2].v[i % 2 * 2] = __uint_as_float(pairs.w[i] << 16);
      x[i / 2].v[i % 2 * 2 + 1] = __uint_as_float(pairs.w[i] & 0xFFFF0000U);
    }
    StoreFour(p.to + at, x[0]);
    StoreFour(p.to + at + 4, x[1]);
  } else {
    for (int64_t i = at; i < p.count; ++i) p.to[i] = F32OfBf16(p.from[i]);
  }
}

LaunchShape ShapeOf(int64_t count) {
  return {.grid = {static_cast<int>(CeilDiv(count, int64_t{kRoundSumThreads} * kNumbers)), 1, 1},
          .block = {kRoundSumThreads, 1, 1}};
}

}  // namespace

CudaKernelOf<RoundSumParameters> RoundSumKernel() {
  return KernelOf<kRoundSumThreads>("round_sum", Round);
}

CudaKernelOf<WidenSumParameters> WidenSumKernel() {
  return KernelOf<kRoundSumThreads>("widen_sum", Widen);
}

const KernelRegistration kRegistered(RoundSumKernel(), WidenSumKernel());

}  // namespace cuda

void RoundSum(CudaDriver& driver, const float* from, uint16_t* to, int64_t count) {
  Enqueue(driver, cuda::RoundSumKernel(), cuda::ShapeOf(count),
          cuda::RoundSumParameters{from, to, count});
}

void WidenSum(CudaDriver& driver, const uint16_t* from, float* to, int64_t count) {
  Enqueue(driver, cuda::WidenSumKernel(), cuda::ShapeOf(count),
          cuda::WidenSumParameters{from, to, count});
}

}  // namespace bulkhead
