#include "intrinsics.h"
#include "kernels/bench/read_all.h"

namespace bulkhead::cuda {
namespace {

constexpr int kAhead = 8;  // loads of a thread in flight

BH_KERNEL(kRowThreads) ReadAll(ReadAllParameters p) {
  GridDependencySynchronize();
  const int thread = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  const int64_t threads = static_cast<int64_t>(int(gridDim.x)) * kRowThreads;
  uint32_t sum = 0;
  for (int64_t first = thread; first < p.num_chunks; first += kAhead * threads) {
    Words4 chunks[kAhead];
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = first + i * threads;
      chunks[i] = {};
      if (at < p.num_chunks) chunks[i] = LoadStream(p.from + at * 16);
    }
    BH_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      BH_UNROLL
      for (int w = 0; w < 4; ++w) sum ^= chunks[i].w[w];
    }
  }
  p.sums[thread] = sum;
}

}  // namespace

CudaKernelOf<ReadAllParameters> ReadAllKernel() {
  return KernelOf<kRowThreads>("read_all", ReadAll);
}

}  // namespace bulkhead::cuda
