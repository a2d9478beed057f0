#include "kernels/cuda/write_late.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "memory/cuda_driver.h"

namespace bulkhead {
namespace cuda {
namespace {

BH_KERNEL(kWriteLateThreads) WriteLate(WriteLateParameters p) {
  GridDependencySynchronize();
  const int64_t stride = int64_t{int(gridDim.x)} * kWriteLateThreads;
  // Whole warps stay in the loop together.
  const int64_t last = (p.count + kWarp - 1) / kWarp * kWarp;
  for (int64_t i = int64_t{int(blockIdx.x)} * kWriteLateThreads + int(threadIdx.x); i < last;
       i += stride) {
    float value = static_cast<float>((p.first + i) % p.period + p.offset);
    // Neighbours exchange it an even number of times.
    for (int turn = 0; turn < p.turns; ++turn) value = __shfl_xor_sync(kFullMask, value, 1);
    if (i < p.count) p.out[i] = value;
  }
}

}  // namespace

CudaKernelOf<WriteLateParameters> WriteLateKernel() {
  return KernelOf<kWriteLateThreads>("write_late", WriteLate);
}

const KernelRegistration kRegistered(WriteLateKernel());

}  // namespace cuda

void WriteLate(CudaDriver& driver, float* out, int64_t count, int64_t first, int period,
               int offset) {
  constexpr int64_t kThreads = cuda::kWriteLateThreads;
  const auto blocks =
      static_cast<int>(std::min<int64_t>(cuda::kWriteLateBlocks, CeilDiv(count, kThreads)));
  Enqueue(
      driver, cuda::WriteLateKernel(), {.grid = {blocks, 1, 1}, .block = {kThreads, 1, 1}},
      cuda::WriteLateParameters{out, count, first, period, offset, cuda::WriteLateTurns(count)});
}

}  // namespace bulkhead
