// The products of gemm.cuh, with one matrix.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/gemm.cuh"

namespace bulkhead::cuda {
namespace {

struct TileOfBlock {
  const LinearParameters& p;
  int token0 = int(blockIdx.y) * kGemmTile;
  int output0 = int(blockIdx.x) * kGemmTile;

  BH_DEVICE int InputRow(int row) const { return token0 + row < p.tokens ? token0 + row : -1; }
  BH_DEVICE void Store(const Rows& out, int row, int column, float sum) const {
    const int token = token0 + row;
    const int output = output0 + column;
    if (token < p.tokens && output < p.weight.rows) {
      out.data[static_cast<int64_t>(token) * out.stride + output] = sum;
    }
  }
};

template <WeightFormat kFormat>
BH_KERNEL_SHARING(kGemmThreads, 2)
Gemm(GemmParameters p) {
  GridDependencySynchronize();
  const TileOfBlock tile{p.product};
  MultiplyNumbers<kFormat == WeightFormat::kF16>(
      p.product.x, [&](int row) { return tile.InputRow(row); }, p.product.weight, tile.output0,
      [&](int row, int column, float sum) { tile.Store(p.product.out, row, column, sum); });
}

template <WeightFormat kFormat>
BH_KERNEL(kGemmThreads)
GemmOfCodes(GemmParameters p) {
  GridDependencySynchronize();
  const TileOfBlock tile{p.product};
  const auto steps = static_cast<unsigned>(p.product.weight.depth / kStepInputs);
  DepthRange range{0, steps, p.part_steps};
  Rows out = p.product.out;
  if (p.part_out != nullptr) {
    const unsigned part = blockIdx.z;
    range.begin = part * p.part_steps;
    if (range.begin + p.part_steps < steps) range.end = range.begin + p.part_steps;
    out.stride = p.product.weight.rows;
    out.data = p.part_out + static_cast<int64_t>(part) * p.product.tokens * out.stride;
  }
  MultiplyCodes<kFormat, true>(
      p.product.x, [&](int row) { return tile.InputRow(row); }, p.product.weight, tile.output0,
      range, [&](int row, int column, float sum) { tile.Store(out, row, column, sum); });
}

// The same order as in a block that has all parts: from 0 on.
BH_KERNEL(kAddPartsThreads) AddParts(AddPartsParameters p) {
  GridDependencySynchronize();
  const int row = int(blockIdx.y) * kAddPartsThreads + int(threadIdx.x);
  const int64_t token = int(blockIdx.x);
  if (row >= p.rows) return;
  const int64_t part_numbers = static_cast<int64_t>(p.tokens) * p.rows;
  const float* const from = p.parts + token * p.rows + row;
  float parts[kMaxGemmParts];  // all loads are issued before any is used
  BH_UNROLL
  for (int i = 0; i < kMaxGemmParts; ++i) {
    parts[i] = i < p.num_parts ? from[i * part_numbers] : 0.0F;
  }
  float sum = 0.0F;
  BH_UNROLL
  for (int i = 0; i < kMaxGemmParts; ++i) sum += parts[i];
  p.out.data[token * p.out.stride + row] = sum;
}

}  // namespace

CudaKernelOf<GemmParameters> GemmKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf<kGemmThreads>("gemm f16", Gemm<WeightFormat::kF16>);
    case WeightFormat::kInt8:
      return KernelOf<kGemmThreads>("gemm int8", GemmOfCodes<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf<kGemmThreads>("gemm int4", GemmOfCodes<WeightFormat::kInt4>);
    case WeightFormat::kFp8:
      return KernelOf<kGemmThreads>("gemm fp8", GemmOfCodes<WeightFormat::kFp8>);
    case WeightFormat::kMxfp4:
      return KernelOf<kGemmThreads>("gemm mxfp4", GemmOfCodes<WeightFormat::kMxfp4>);
    case WeightFormat::kNvfp4:
      return KernelOf<kGemmThreads>("gemm nvfp4", GemmOfCodes<WeightFormat::kNvfp4>);
    default:
      return KernelOf<kGemmThreads>("gemm bf16", Gemm<WeightFormat::kBF16>);
  }
}

CudaKernelOf<AddPartsParameters> AddPartsKernel() {
  return KernelOf<kAddPartsThreads>("add_parts", AddParts);
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels = {AddPartsKernel().kernel};
  for (const WeightFormat format : kProductFormats) kernels.push_back(GemmKernel(format).kernel);
  return kernels;
}());

}  // namespace bulkhead::cuda
