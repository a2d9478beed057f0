#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) Add(AddParameters p) {
  AwaitPrevious();
  const float* const addend = p.addend.data + BlockX() * p.addend.stride;
  float* const x = p.x.data + BlockX() * p.x.stride;
  for (int i = ThreadIndex(); i < p.width; i += kRowThreads) {
    x[i] += p.bias == nullptr ? addend[i] : addend[i] + p.bias[i];
  }
}

}  // namespace

CudaKernelOf<AddParameters> AddKernel() { return KernelOf("add", Add); }

}  // namespace bulkhead::cuda
