#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) Fill(FillParameters p) {
  AwaitPrevious();
  float* const x = p.x.data + BlockX() * p.x.stride;
  for (int i = ThreadIndex(); i < p.width; i += kRowThreads) x[i] = p.value;
}

}  // namespace

CudaKernelOf<FillParameters> FillKernel() { return KernelOf("fill", Fill); }

}  // namespace bulkhead::cuda
