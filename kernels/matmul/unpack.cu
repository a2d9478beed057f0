// Rows of a quantised weight as bf16, row-major, for a library that does not take codes. A warp
// takes 64 inputs of a tile of 16 rows: lanes that share a row write pieces of 64 bytes.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/codes.cuh"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

template <WeightFormat kFormat>
BH_KERNEL(kUnpackWarps* kWarp)
Unpack(UnpackParameters p) {
  GridDependencySynchronize();
  constexpr int kChunks = kDepthGranule / kChunkInputs;
  const int first_chunk = (int(blockIdx.y) * kUnpackWarps + WarpIndex()) * kChunks;
  if (first_chunk * kChunkInputs >= p.weight.depth) return;
  Codes<kFormat> codes[kChunks];
  BH_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    codes[i].Load(p.weight, p.first_row / kTileRows + int(blockIdx.x), first_chunk + i);
  }
  const int64_t row = static_cast<int64_t>(int(blockIdx.x)) * kTileRows + LaneIndex() / 4;
  uint16_t* const to =
      p.out + row * p.weight.depth + first_chunk * kChunkInputs + LaneIndex() % 4 * 8;
  BH_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      Words4 numbers = codes[i].Numbers(half);
      if constexpr (kFormat == WeightFormat::kNvfp4) {
        const float factor = FactorOf(p.weight, p.first_row + static_cast<int>(row) + 8 * half);
        BH_UNROLL
        for (uint32_t& pair : numbers.w) {
          pair = Bf16Pair(__uint_as_float(pair << 16) * factor,
                          __uint_as_float(pair & 0xFFFF0000U) * factor);
        }
      }
      StoreVector(to + int64_t{8} * half * p.weight.depth + i * kChunkInputs, numbers);
    }
  }
}

}  // namespace

CudaKernelOf<UnpackParameters> UnpackKernel(WeightFormat format) {
  constexpr int kThreads = kUnpackWarps * kWarp;
  switch (format) {
    case WeightFormat::kInt8:
      return KernelOf<kThreads>("unpack int8", Unpack<WeightFormat::kInt8>);
    case WeightFormat::kFp8:
      return KernelOf<kThreads>("unpack fp8", Unpack<WeightFormat::kFp8>);
    case WeightFormat::kMxfp4:
      return KernelOf<kThreads>("unpack mxfp4", Unpack<WeightFormat::kMxfp4>);
    case WeightFormat::kNvfp4:
      return KernelOf<kThreads>("unpack nvfp4", Unpack<WeightFormat::kNvfp4>);
    default:
      return KernelOf<kThreads>("unpack int4", Unpack<WeightFormat::kInt4>);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const WeightFormat format : kQuantizedFormats) {
    kernels.push_back(UnpackKernel(format).kernel);
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
