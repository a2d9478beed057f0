// The products of linear.cuh and gemm.cuh, with one matrix per head.
#include "base/check.h"
#include "intrinsics.h"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/gemm.cuh"
#include "kernels/matmul/linear.cuh"
#include "kernels/matmul_heads/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

template <bool kF16>
BH_KERNEL(kHeadWarps* kWarp)
GatherHeads(GatherHeadsParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head >= p.heads) return;
  const int64_t token = int(blockIdx.x);
  const int64_t from = token * p.x_stride + head * p.x_step;
  uint16_t* const out = p.out + (token * p.heads + head) * p.depth;
  for (int at = LaneIndex(); at < p.depth; at += kWarp) {
    const int input = p.input_at == nullptr ? at : p.input_at[at];
    float value = 0.0F;
    if (input >= 0 && input < p.inputs) {
      const int64_t place = from + input;
      if (p.numbers == Numbers::kF32) {
        value = static_cast<const float*>(p.x)[place];
      } else {
        const uint16_t bits = static_cast<const uint16_t*>(p.x)[place];
        value = p.numbers == Numbers::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
      }
    }
    out[at] = kF16 ? F16OfF32(value) : Bf16OfF32(value);
  }
}

// The weight of the block's head.
template <WeightFormat kFormat>
BH_DEVICE PackedWeight WeightOfBlock(const HeadProductParameters& p) {
  return FurtherWeight<kFormat>(p.weight, int(blockIdx.z) * p.head_bytes);
}

BH_DEVICE void Store(const HeadProductParameters& p, int token, int output, float sum) {
  if (token >= p.tokens || output >= p.weight.rows) return;
  StoreOut(p.out, token * p.out.stride + int(blockIdx.z) * p.out_step + output, sum);
}

// With so few tokens all rows together have less than 2^31 numbers.
struct HeadRows {
  const HeadProductParameters& p;
  int token0;

  BH_DEVICE int Count() const { return p.tokens - token0; }
  BH_DEVICE const uint16_t* Row(int column) const {
    const int row = (token0 + column) * p.heads + int(blockIdx.z);
    return p.x + static_cast<uint32_t>(row * p.weight.depth);
  }
};

template <WeightFormat kFormat, int kTiles>
BH_KERNEL(kLinearMaxThreads<kTiles>)
HeadLinear(HeadProductParameters p) {
  const int token0 = int(blockIdx.y) * kTiles * 8;
  const int row_tile = int(blockIdx.x) * LinearRowTiles(kFormat);
  Sums<kFormat, kTiles> sums;
  // No kernel writes weights: they may be read before the wait.
  MultiplyParts(
      WeightOfBlock<kFormat>(p), p.parts, row_tile, HeadRows{p, token0},
      [] { GridDependencySynchronize(); }, sums);
  AddWarps(sums, p.parts, [&](int column, int row_of_tiles, float sum) {
    Store(p, token0 + column, row_tile * kTileRows + row_of_tiles, sum);
  });
}

template <WeightFormat kFormat>
BH_DEVICE void Multiply(const HeadProductParameters& p) {
  GridDependencySynchronize();
  const int token0 = int(blockIdx.y) * kGemmTile;
  const int output0 = int(blockIdx.x) * kGemmTile;
  MultiplyTile<kFormat>(
      p.x + int(blockIdx.z) * p.weight.depth,
      [&](int row) { return token0 + row < p.tokens ? (token0 + row) * p.heads : -1; },
      WeightOfBlock<kFormat>(p), output0,
      [&](int row, int column, float sum) { Store(p, token0 + row, output0 + column, sum); });
}

template <WeightFormat kFormat>
BH_KERNEL_SHARING(kGemmThreads, 2)
HeadGemm(HeadProductParameters p) {
  Multiply<kFormat>(p);
}

template <WeightFormat kFormat>
BH_KERNEL(kGemmThreads)
HeadGemmOfCodes(HeadProductParameters p) {
  Multiply<kFormat>(p);
}

template <WeightFormat kFormat>
CudaKernelOf<HeadProductParameters> LinearOfFormat(const char* name, int token_tiles) {
  if (token_tiles == 1) return KernelOf<kLinearMaxThreads<1>>(name, HeadLinear<kFormat, 1>);
  if (token_tiles == 2) return KernelOf<kLinearMaxThreads<2>>(name, HeadLinear<kFormat, 2>);
  return KernelOf<kLinearMaxThreads<4>>(name, HeadLinear<kFormat, 4>);
}

}  // namespace

CudaKernelOf<GatherHeadsParameters> GatherHeadsKernel(bool f16) {
  return f16 ? KernelOf<kHeadWarps * kWarp>("gather_heads f16", GatherHeads<true>)
             : KernelOf<kHeadWarps * kWarp>("gather_heads bf16", GatherHeads<false>);
}

CudaKernelOf<HeadProductParameters> HeadLinearKernel(WeightFormat format, int token_tiles) {
  switch (format) {
    case WeightFormat::kF16:
      return LinearOfFormat<WeightFormat::kF16>("head linear f16", token_tiles);
    case WeightFormat::kInt8:
      return LinearOfFormat<WeightFormat::kInt8>("head linear int8", token_tiles);
    case WeightFormat::kInt4:
      return LinearOfFormat<WeightFormat::kInt4>("head linear int4", token_tiles);
    default:
      BH_CHECK(format == WeightFormat::kBF16);
      return LinearOfFormat<WeightFormat::kBF16>("head linear bf16", token_tiles);
  }
}

CudaKernelOf<HeadProductParameters> HeadGemmKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf<kGemmThreads>("head gemm f16", HeadGemm<WeightFormat::kF16>);
    case WeightFormat::kInt8:
      return KernelOf<kGemmThreads>("head gemm int8", HeadGemmOfCodes<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf<kGemmThreads>("head gemm int4", HeadGemmOfCodes<WeightFormat::kInt4>);
    default:
      BH_CHECK(format == WeightFormat::kBF16);
      return KernelOf<kGemmThreads>("head gemm bf16", HeadGemm<WeightFormat::kBF16>);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const bool f16 : {false, true}) kernels.push_back(GatherHeadsKernel(f16).kernel);
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const int tiles : {1, 2, 4}) kernels.push_back(HeadLinearKernel(format, tiles).kernel);
    kernels.push_back(HeadGemmKernel(format).kernel);
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
