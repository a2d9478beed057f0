// The products of linear.cuh and gemm.cuh for pairs of a token and an expert: a block has a tile of
// one expert's pairs, and reads their rows of inputs in place.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/experts/cuda_kernels.h"
#include "kernels/experts/products.cuh"
#include "kernels/matmul/gemm.cuh"
#include "kernels/matmul/linear.cuh"

namespace bulkhead::cuda {
namespace {

struct PairRows {
  const ExpertProductParameters& p;
  const ExpertTile& tile;

  BH_DEVICE int Count() const { return tile.end - tile.begin; }
  BH_DEVICE const uint16_t* Row(int column) const {
    return p.x + static_cast<int64_t>(RowOf(p, tile.begin + column)) * p.weight.depth;
  }
};

template <WeightFormat kFormat, int kTiles>
BH_KERNEL(kLinearMaxThreads<kTiles>)
ExpertLinear(ExpertProductParameters p) {
  GridDependencySynchronize();
  const ExpertTile tile = TileAt(p, int(blockIdx.y));
  if (IsEmpty(tile)) return;
  const int row_tile = p.first_output / kTileRows + int(blockIdx.x) * LinearRowTiles(kFormat);
  Sums<kFormat, kTiles> sums;
  MultiplyParts(
      WeightOf<kFormat>(p, tile.expert), p.parts, row_tile, PairRows{p, tile}, [] {}, sums);
  AddWarps(sums, p.parts, [&](int column, int row_of_tiles, float sum) {
    const int64_t pair = tile.begin + column;
    const int output = row_tile * kTileRows + row_of_tiles;
    if (pair < tile.end && output < p.end_output) {
      p.out.data[pair * p.out.stride + output - p.first_output] = sum;
    }
  });
}

template <WeightFormat kFormat>
BH_DEVICE void Multiply(const ExpertProductParameters& p) {
  GridDependencySynchronize();
  const ExpertTile tile = TileAt(p, int(blockIdx.y));
  if (IsEmpty(tile)) return;
  auto* const rows = reinterpret_cast<int32_t*>(SharedMemory() + kGemmSharedBytes);
  if (int(threadIdx.x) < kGemmTile) {
    const int pair = tile.begin + int(threadIdx.x);
    rows[threadIdx.x] = pair < tile.end ? RowOf(p, pair) : -1;
  }
  __syncthreads();
  const int output0 = p.first_output + int(blockIdx.x) * kGemmTile;
  MultiplyTile<kFormat>(
      p.x, [&](int row) { return rows[row]; }, WeightOf<kFormat>(p, tile.expert), output0,
      [&](int row, int column, float sum) {
        const int64_t pair = tile.begin + row;
        const int output = output0 + column;
        if (pair < tile.end && output < p.end_output) {
          p.out.data[pair * p.out.stride + output - p.first_output] = sum;
        }
      });
}

template <WeightFormat kFormat>
BH_KERNEL_SHARING(kGemmThreads, 2)
ExpertGemm(ExpertProductParameters p) {
  Multiply<kFormat>(p);
}

template <WeightFormat kFormat>
BH_KERNEL(kGemmThreads)
ExpertGemmOfCodes(ExpertProductParameters p) {
  Multiply<kFormat>(p);
}

template <WeightFormat kFormat>
CudaKernelOf<ExpertProductParameters> LinearOfFormat(const char* name, int column_tiles) {
  if (column_tiles == 1) return KernelOf<kLinearMaxThreads<1>>(name, ExpertLinear<kFormat, 1>);
  if (column_tiles == 2) return KernelOf<kLinearMaxThreads<2>>(name, ExpertLinear<kFormat, 2>);
  return KernelOf<kLinearMaxThreads<4>>(name, ExpertLinear<kFormat, 4>);
}

}  // namespace

CudaKernelOf<ExpertProductParameters> ExpertLinearKernel(WeightFormat format, int column_tiles) {
  switch (format) {
    case WeightFormat::kF16:
      return LinearOfFormat<WeightFormat::kF16>("expert linear f16", column_tiles);
    case WeightFormat::kInt8:
      return LinearOfFormat<WeightFormat::kInt8>("expert linear int8", column_tiles);
    case WeightFormat::kInt4:
      return LinearOfFormat<WeightFormat::kInt4>("expert linear int4", column_tiles);
    case WeightFormat::kFp8:
      return LinearOfFormat<WeightFormat::kFp8>("expert linear fp8", column_tiles);
    case WeightFormat::kMxfp4:
      return LinearOfFormat<WeightFormat::kMxfp4>("expert linear mxfp4", column_tiles);
    case WeightFormat::kNvfp4:
      return LinearOfFormat<WeightFormat::kNvfp4>("expert linear nvfp4", column_tiles);
    default:
      return LinearOfFormat<WeightFormat::kBF16>("expert linear bf16", column_tiles);
  }
}

CudaKernelOf<ExpertProductParameters> ExpertGemmKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf<kGemmThreads>("expert gemm f16", ExpertGemm<WeightFormat::kF16>);
    case WeightFormat::kInt8:
      return KernelOf<kGemmThreads>("expert gemm int8", ExpertGemmOfCodes<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf<kGemmThreads>("expert gemm int4", ExpertGemmOfCodes<WeightFormat::kInt4>);
    case WeightFormat::kFp8:
      return KernelOf<kGemmThreads>("expert gemm fp8", ExpertGemmOfCodes<WeightFormat::kFp8>);
    case WeightFormat::kMxfp4:
      return KernelOf<kGemmThreads>("expert gemm mxfp4", ExpertGemmOfCodes<WeightFormat::kMxfp4>);
    case WeightFormat::kNvfp4:
      return KernelOf<kGemmThreads>("expert gemm nvfp4", ExpertGemmOfCodes<WeightFormat::kNvfp4>);
    default:
      return KernelOf<kGemmThreads>("expert gemm bf16", ExpertGemm<WeightFormat::kBF16>);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : kProductFormats) {
    for (const int tiles : {1, 2, 4}) kernels.push_back(ExpertLinearKernel(format, tiles).kernel);
    kernels.push_back(ExpertGemmKernel(format).kernel);
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
