#include "kernels/cuda/write_late.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

void WriteLate(CudaDriver& driver, float* out, int64_t count, int64_t first, int period,
               int offset) {
  constexpr int kTurns = 2000;  // of some 25 cycles
  constexpr int64_t kThreads = cuda::kWriteLateThreads;
  const auto blocks =
      static_cast<int>(std::min<int64_t>(cuda::kWriteLateBlocks, CeilDiv(count, kThreads)));
  Enqueue(driver, cuda::WriteLateKernel(), {.grid = {blocks, 1, 1}, .block = {kThreads, 1, 1}},
          cuda::WriteLateParameters{out, count, first, period, offset, kTurns});
}

}  // namespace bulkhead
