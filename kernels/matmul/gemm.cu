// The products of gemm.cuh of the rows of one matrix.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/gemm.cuh"

namespace bulkhead::cuda {
namespace {

template <WeightFormat kFormat>
BH_DEVICE void Multiply(const LinearParameters& p) {
  GridDependencySynchronize();
  const int token0 = int(blockIdx.y) * kGemmTile;
  const int output0 = int(blockIdx.x) * kGemmTile;
  MultiplyTile<kFormat>(
      p.x, [&](int row) { return token0 + row < p.tokens ? token0 + row : -1; }, p.weight, output0,
      [&](int row, int column, float sum) {
        const int token = token0 + row;
        const int output = output0 + column;
        if (token < p.tokens && output < p.weight.rows) {
          p.out.data[static_cast<int64_t>(token) * p.out.stride + output] = sum;
        }
      });
}

template <WeightFormat kFormat>
BH_KERNEL_SHARING(kGemmThreads, 2)
Gemm(LinearParameters p) {
  Multiply<kFormat>(p);
}

template <WeightFormat kFormat>
BH_KERNEL(kGemmThreads)
GemmOfCodes(LinearParameters p) {
  Multiply<kFormat>(p);
}

}  // namespace

CudaKernelOf<LinearParameters> GemmKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf<kGemmThreads>("gemm f16", Gemm<WeightFormat::kF16>);
    case WeightFormat::kInt8:
      return KernelOf<kGemmThreads>("gemm int8", GemmOfCodes<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf<kGemmThreads>("gemm int4", GemmOfCodes<WeightFormat::kInt4>);
    case WeightFormat::kFp8:
      return KernelOf<kGemmThreads>("gemm fp8", GemmOfCodes<WeightFormat::kFp8>);
    case WeightFormat::kFp4:
      return KernelOf<kGemmThreads>("gemm fp4", GemmOfCodes<WeightFormat::kFp4>);
    default:
      return KernelOf<kGemmThreads>("gemm bf16", Gemm<WeightFormat::kBF16>);
  }
}

const KernelRegistration kRegistered(GemmKernel(WeightFormat::kBF16),
                                     GemmKernel(WeightFormat::kF16),
                                     GemmKernel(WeightFormat::kInt8),
                                     GemmKernel(WeightFormat::kInt4),
                                     GemmKernel(WeightFormat::kFp8),
                                     GemmKernel(WeightFormat::kFp4));

}  // namespace bulkhead::cuda
