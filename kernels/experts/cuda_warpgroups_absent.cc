// A build for GPUs of which none has compute capability 9.0.
#include "kernels/experts/cuda_kernels.h"

namespace bulkhead::cuda {

std::optional<CudaKernelOf<ExpertProductParameters>> ExpertPiecesKernel(WeightFormat /*format*/) {
  return std::nullopt;
}

}  // namespace bulkhead::cuda
