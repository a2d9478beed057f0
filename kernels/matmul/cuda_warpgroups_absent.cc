// For builds without GPUs of compute capability 9.0.
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

std::optional<CudaKernelOf<WarpgroupLinearParameters>> LinearWarpgroupKernel(
    WeightFormat /*format*/, int /*tokens*/) {
  return std::nullopt;
}

}  // namespace bulkhead::cuda
