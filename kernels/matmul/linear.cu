// The products of linear.cuh, with one matrix.
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

template <WeightFormat kFormat, int kTiles, LinearWidth kWidth>
BH_KERNEL((kLinearMaxThreads<kTiles, kWidth>))
Linear(LinearParameters p) {
  const int token0 = int(blockIdx.y) * kTiles * 8;
  const int row_tile = int(blockIdx.x) * LinearRowTiles(kFormat, kWidth);
  Sums<kFormat, kTiles, kWidth> sums;
  // No kernel writes weights: they may be read before the wait.
  MultiplyParts(
      p.weight, p.parts, row_tile, TokenRows{p, token0}, [] { GridDependencySynchronize(); }, sums);
  AddWarps(sums, p.parts, [&](int column, int row_of_tiles, float sum) {
    const int token = token0 + column;
    const int row = row_tile * kTileRows + row_of_tiles;
    if (token < p.tokens && row < p.weight.rows) p.out.data[token * p.out.stride + row] = sum;
  });
}

template <WeightFormat kFormat, int kTiles, LinearWidth kWidth = LinearWidth::kNarrow>
CudaKernelOf<LinearParameters> KernelOfTiles(const char* name) {
  return KernelOf<kLinearMaxThreads<kTiles, kWidth>>(name, Linear<kFormat, kTiles, kWidth>);
}

template <WeightFormat kFormat>
CudaKernelOf<LinearParameters> KernelOfFormat(const char* name, int token_tiles,
                                              LinearWidth width) {
  if constexpr (IsQuantized(kFormat)) {
    if (width == LinearWidth::kWide) {
      return token_tiles == 2 ? KernelOfTiles<kFormat, 2, LinearWidth::kWide>(name)
                              : KernelOfTiles<kFormat, 4, LinearWidth::kWide>(name);
    }
  }
  if (token_tiles == 1) return KernelOfTiles<kFormat, 1>(name);
  return token_tiles == 2 ? KernelOfTiles<kFormat, 2>(name) : KernelOfTiles<kFormat, 4>(name);
}

}  // namespace

CudaKernelOf<LinearParameters> LinearKernel(WeightFormat format, int token_tiles,
                                            LinearWidth width) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOfFormat<WeightFormat::kF16>("linear f16", token_tiles, width);
    case WeightFormat::kInt8:
      return KernelOfFormat<WeightFormat::kInt8>("linear int8", token_tiles, width);
    case WeightFormat::kInt4:
      return KernelOfFormat<WeightFormat::kInt4>("linear int4", token_tiles, width);
    case WeightFormat::kFp8:
      return KernelOfFormat<WeightFormat::kFp8>("linear fp8", token_tiles, width);
    case WeightFormat::kMxfp4:
      return KernelOfFormat<WeightFormat::kMxfp4>("linear mxfp4", token_tiles, width);
    case WeightFormat::kNvfp4:
      return KernelOfFormat<WeightFormat::kNvfp4>("linear nvfp4", token_tiles, width);
    default:
      return KernelOfFormat<WeightFormat::kBF16>("linear bf16", token_tiles, width);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : kProductFormats) {
    for (const int tiles : {1, 2, 4}) {
      kernels.push_back(LinearKernel(format, tiles, LinearWidth::kNarrow).kernel);
      if (tiles == 1 || !IsQuantized(format)) continue;
      kernels.push_back(LinearKernel(format, tiles, LinearWidth::kWide).kernel);
    }
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
