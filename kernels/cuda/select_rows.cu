#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) SelectRows(SelectRowsParameters p) {
  AwaitPrevious();
  const float* const x = p.x.data + p.rows[BlockX()] * p.x.stride;
  float* const out = p.out.data + BlockX() * p.out.stride;
  for (int i = ThreadIndex(); i < p.width; i += kRowThreads) out[i] = x[i];
}

}  // namespace

CudaKernelOf<SelectRowsParameters> SelectRowsKernel() {
  return KernelOf("select_rows", SelectRows);
}

}  // namespace bulkhead::cuda
