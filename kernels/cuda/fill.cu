#include "intrinsics.h"
#include "kernels/cuda/kernels.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) Fill(FillParameters p) {
  GridDependencySynchronize();
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) x[i] = p.value;
}

}  // namespace

CudaKernelOf<FillParameters> FillKernel() { return KernelOf("fill", Fill); }

}  // namespace bulkhead::cuda
