// The products of warpgroups.cuh, with one matrix.
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/warpgroups.cuh"

namespace bulkhead::cuda {
namespace {

// Per multiplying thread and per copying thread: together 64 Ki, each a multiple of 8.
constexpr int kMultiplyRegisters = 224;
constexpr int kCopyRegisters = 56;

template <WeightFormat kFormat, int kTokens>
BH_KERNEL(kWarpgroupLinearMaxThreads)
LinearWarpgroups(WarpgroupLinearParameters p) {
  constexpr WarpgroupStages kStages{kFormat, kTokens};
  const PairsOfBlock pairs(p);
  const int warps = (int(blockDim.x) - kWarpgroupLinearCopyThreads) / kWarp;  // multiplying warps
  if (WarpIndex() >= warps) {
    GiveRegisters<kCopyRegisters>();
    unsigned char* const places = SharedMemory() + kStages.SumsAt() +
                                  WarpgroupStages::SumBytes(kTokens, warps, pairs.in_parts) +
                                  warps * kStages.places * kStages.weight_bytes;
    InputCopies<kFormat, kTokens> copies(p.product, pairs, WarpIndex() - warps, places);
    GridDependencySynchronize();
    copies.CopyAll();
    return;
  }
  TakeRegisters<kMultiplyRegisters>();
  // No kernel writes weights: they may be read before the wait.
  TileProducts<kFormat, kTokens> products(p.product.weight, pairs, warps);
  GridDependencySynchronize();
  Rows out = p.product.out;
  if (pairs.in_parts) {
    out.stride = p.product.weight.rows;
    out.data = p.part_out + int64_t{int(blockIdx.z)} * p.product.tokens * out.stride;
  }
  products.Multiply([&](int token, int row, float sum) {
    if (token < p.product.tokens && row < p.product.weight.rows) {
      out.data[token * out.stride + row] = sum;
    }
  });
}

template <WeightFormat kFormat>
CudaKernelOf<WarpgroupLinearParameters> KernelOfFormat(const char* name, int tokens) {
  constexpr int kThreads = kWarpgroupLinearMaxThreads;
  CudaKernelOf<WarpgroupLinearParameters> kernel =
      tokens == 16   ? KernelOf<kThreads>(name, LinearWarpgroups<kFormat, 16>)
      : tokens == 32 ? KernelOf<kThreads>(name, LinearWarpgroups<kFormat, 32>)
                     : KernelOf<kThreads>(name, LinearWarpgroups<kFormat, 64>);
  kernel.kernel.only_capability = 90;
  return kernel;
}

}  // namespace

std::optional<CudaKernelOf<WarpgroupLinearParameters>> LinearWarpgroupKernel(WeightFormat format,
                                                                             int tokens) {
  switch (format) {
    case WeightFormat::kInt8:
      return KernelOfFormat<WeightFormat::kInt8>("linear warpgroups int8", tokens);
    case WeightFormat::kInt4:
      return KernelOfFormat<WeightFormat::kInt4>("linear warpgroups int4", tokens);
    case WeightFormat::kFp8:
      return KernelOfFormat<WeightFormat::kFp8>("linear warpgroups fp8", tokens);
    case WeightFormat::kMxfp4:
      return KernelOfFormat<WeightFormat::kMxfp4>("linear warpgroups mxfp4", tokens);
    case WeightFormat::kNvfp4:
      return KernelOfFormat<WeightFormat::kNvfp4>("linear warpgroups nvfp4", tokens);
    default:
      return std::nullopt;
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int tokens : {16, 32, 64}) {
      kernels.push_back(LinearWarpgroupKernel(format, tokens)->kernel);
    }
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
