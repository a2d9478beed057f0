// Products of experts by warpgroup products (cuda_kernels.h).
#include "kernels/cuda/registered_kernels.h"
#include "kernels/experts/warpgroups.cuh"

namespace bulkhead::cuda {
namespace {

template <WeightFormat kFormat>
constexpr int kThreads = kPieceComputeThreads + (IsQuantized(kFormat) ? 2 : 1) * kWarpgroup;

template <WeightFormat kFormat>
BH_KERNEL(kThreads<kFormat>)
ExpertPieces(ExpertProductParameters p) {
  GridDependencySynchronize();
  MultiplyByWarpgroups<kFormat, kThreads<kFormat>>(p);
}

template <WeightFormat kFormat>
CudaKernelOf<ExpertProductParameters> KernelOfFormat(const char* name) {
  CudaKernelOf<ExpertProductParameters> kernel =
      KernelOf<kThreads<kFormat>>(name, ExpertPieces<kFormat>);
  kernel.kernel.only_capability = 90;
  return kernel;
}

}  // namespace

std::optional<CudaKernelOf<ExpertProductParameters>> ExpertPiecesKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOfFormat<WeightFormat::kF16>("expert pieces f16");
    case WeightFormat::kInt8:
      return KernelOfFormat<WeightFormat::kInt8>("expert pieces int8");
    case WeightFormat::kInt4:
      return KernelOfFormat<WeightFormat::kInt4>("expert pieces int4");
    case WeightFormat::kFp8:
      return KernelOfFormat<WeightFormat::kFp8>("expert pieces fp8");
    case WeightFormat::kMxfp4:
      return KernelOfFormat<WeightFormat::kMxfp4>("expert pieces mxfp4");
    case WeightFormat::kNvfp4:
      return KernelOfFormat<WeightFormat::kNvfp4>("expert pieces nvfp4");
    default:
      return KernelOfFormat<WeightFormat::kBF16>("expert pieces bf16");
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : kProductFormats) {
    kernels.push_back(ExpertPiecesKernel(format)->kernel);
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
