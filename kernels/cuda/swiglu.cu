#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) SwiGlu(SwiGluParameters p) {
  AwaitPrevious();
  const float* const gate = p.gate_up.data + BlockX() * p.gate_up.stride;
  const float* const up = gate + p.width;
  float* const out = p.out.data + BlockX() * p.out.stride;
  constexpr int kCols = kSwiGluCols / kRowThreads;
  const int first = BlockY() * kSwiGluCols + ThreadIndex();
  float gates[kCols];
  float ups[kCols];
  BH_UNROLL
  for (int i = 0; i < kCols; ++i) {  // all asked for before any is used
    const int col = first + i * kRowThreads;
    gates[i] = col < p.width ? gate[col] : 0.0F;
    ups[i] = col < p.width ? up[col] : 0.0F;
  }
  BH_UNROLL
  for (int i = 0; i < kCols; ++i) {
    const int col = first + i * kRowThreads;
    if (col < p.width) out[col] = gates[i] / (1.0F + expf(-gates[i])) * ups[i];
  }
}

}  // namespace

CudaKernelOf<SwiGluParameters> SwiGluKernel() { return KernelOf("swiglu", SwiGlu); }

}  // namespace bulkhead::cuda
