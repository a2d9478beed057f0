#include "intrinsics.h"
#include "kernels/cuda/kernels.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kRowThreads) SelectRows(SelectRowsParameters p) {
  GridDependencySynchronize();
  const float* const x = p.x.data + p.rows[int(blockIdx.x)] * p.x.stride;
  float* const out = p.out.data + int(blockIdx.x) * p.out.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) out[i] = x[i];
}

}  // namespace

CudaKernelOf<SelectRowsParameters> SelectRowsKernel() {
  return KernelOf("select_rows", SelectRows);
}

}  // namespace bulkhead::cuda
