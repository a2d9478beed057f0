// For builds without GPUs of compute capability 9.0.
#include "kernels/experts/cuda_kernels.h"

namespace bulkhead::cuda {

std::optional<CudaKernelOf<ExpertProductParameters>> ExpertPiecesKernel(WeightFormat /*format*/) {
  return std::nullopt;
}

}  // namespace bulkhead::cuda
