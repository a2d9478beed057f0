#include "intrinsics.h"
#include "kernels/cuda/kernels.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) Add(AddParameters p) {
  GridDependencySynchronize();
  const float* const addend = p.addend.data + int(blockIdx.x) * p.addend.stride;
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) {
    x[i] += p.bias == nullptr ? addend[i] : addend[i] + p.bias[i];
  }
}

}  // namespace

CudaKernelOf<AddParameters> AddKernel() { return KernelOf("add", Add); }

}  // namespace bulkhead::cuda
