#include "intrinsics.h"
#include "kernels/cuda/kernels.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) FillInSampled(FillInSampledParameters p) {
  GridDependencySynchronize();
  const int token = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  if (token >= p.tokens || p.token_ids[token] >= 0) return;
  p.token_ids[token] = p.last_sampled[p.seq_slot[p.token_seq[token]]];
}

}  // namespace

CudaKernelOf<FillInSampledParameters> FillInSampledKernel() {
  return KernelOf("fill_in_sampled", FillInSampled);
}

}  // namespace bulkhead::cuda
