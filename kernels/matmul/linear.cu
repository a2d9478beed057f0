// The products of linear.cuh of the rows of one matrix.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/linear.cuh"

namespace bulkhead::cuda {
namespace {

struct TokenRows {
  const LinearParameters& p;
  int token0;

  BH_DEVICE int Count() const { return p.tokens - token0; }
  BH_DEVICE const uint16_t* Row(int column) const {
    return p.x + static_cast<int64_t>(token0 + column) * p.weight.depth;
  }
};

template <WeightFormat kFormat, int kTiles>
BH_KERNEL(kLinearMaxThreads<kTiles>)
Linear(LinearParameters p) {
  const int token0 = int(blockIdx.y) * kTiles * 8;
  const int row_tile = int(blockIdx.x) * kLinearRowTiles<kFormat>;
  Sums<kFormat, kTiles> sums;
  // No kernel writes weights: they may be read before the wait.
  MultiplyParts<kFormat, kTiles>(
      p.weight, p.parts, row_tile, TokenRows{p, token0}, [] { GridDependencySynchronize(); }, sums);
  AddWarps(sums, p.parts, [&](int column, int row_of_tiles, float sum) {
    const int token = token0 + column;
    const int row = row_tile * kTileRows + row_of_tiles;
    if (token < p.tokens && row < p.weight.rows) p.out.data[token * p.out.stride + row] = sum;
  });
}

template <WeightFormat kFormat>
CudaKernelOf<LinearParameters> KernelOfFormat(const char* name, int token_tiles) {
  if (token_tiles == 1) return KernelOf<kLinearMaxThreads<1>>(name, Linear<kFormat, 1>);
  if (token_tiles == 2) return KernelOf<kLinearMaxThreads<2>>(name, Linear<kFormat, 2>);
  return KernelOf<kLinearMaxThreads<4>>(name, Linear<kFormat, 4>);
}

}  // namespace

CudaKernelOf<LinearParameters> LinearKernel(WeightFormat format, int token_tiles) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOfFormat<WeightFormat::kF16>("linear f16", token_tiles);
    case WeightFormat::kInt8:
      return KernelOfFormat<WeightFormat::kInt8>("linear int8", token_tiles);
    case WeightFormat::kInt4:
      return KernelOfFormat<WeightFormat::kInt4>("linear int4", token_tiles);
    case WeightFormat::kFp8:
      return KernelOfFormat<WeightFormat::kFp8>("linear fp8", token_tiles);
    case WeightFormat::kFp4:
      return KernelOfFormat<WeightFormat::kFp4>("linear fp4", token_tiles);
    default:
      return KernelOfFormat<WeightFormat::kBF16>("linear bf16", token_tiles);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kInt8,
                                    WeightFormat::kInt4, WeightFormat::kFp8, WeightFormat::kFp4}) {
    for (const int tiles : {1, 2, 4}) kernels.push_back(LinearKernel(format, tiles).kernel);
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
