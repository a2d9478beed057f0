#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) SwiGlu(SwiGluParameters p) {
  AwaitPrevious();
  const float* const gate = p.gate_up.data + BlockX() * p.gate_up.stride;
  const float* const up = gate + p.width;
  float* const out = p.out.data + BlockX() * p.out.stride;
  for (int i = ThreadIndex(); i < p.width; i += kRowThreads) {
    out[i] = gate[i] / (1.0F + expf(-gate[i])) * up[i];
  }
}

}  // namespace

CudaKernelOf<SwiGluParameters> SwiGluKernel() { return KernelOf("swiglu", SwiGlu); }

}  // namespace bulkhead::cuda
