// Operands of products in fp8 for a library that multiplies E4M3 by E4M3.
#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

constexpr float kLargestE4m3 = 448.0F;

struct alignas(8) Words2 {
  uint32_t w[2];
};

// A warp takes 64 inputs of a tile of 16 rows, as Unpack does.
BH_KERNEL(kUnpackWarps* kWarp)
UnpackFp8(UnpackFp8Parameters p) {
  GridDependencySynchronize();
  constexpr int kChunks = kDepthGranule / kChunkInputs;
  const PackedWeight& weight = p.weight;
  const int first_chunk = (int(blockIdx.y) * kUnpackWarps + WarpIndex()) * kChunks;
  const int row_tile = p.first_row / kTileRows + int(blockIdx.x);
  const int padded_rows = (weight.rows + kTileRows - 1) / kTileRows * kTileRows;
  if (first_chunk * kChunkInputs >= weight.depth || row_tile * kTileRows >= padded_rows) return;
  const int64_t row = static_cast<int64_t>(int(blockIdx.x)) * kTileRows + LaneIndex() / 4;
  unsigned char* const to =
      p.codes + row * weight.depth + first_chunk * kChunkInputs + LaneIndex() % 4 * 8;
  const int64_t first = static_cast<int64_t>(row_tile) * (weight.depth / kChunkInputs);
  BH_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    const auto words = LoadVector<Words4>(
        weight.numbers + ((first + first_chunk + i) * kWarp + LaneIndex()) * sizeof(Words4));
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      StoreVector(to + int64_t{8} * half * weight.depth + i * kChunkInputs,
                  Words2{{words.w[half], words.w[half + 2]}});
    }
  }
  constexpr int kGroupChunks = kFp8Group / kChunkInputs;
  const int of_piece = int(blockIdx.x) * kTileRows + LaneIndex();
  if (first_chunk % kGroupChunks != 0 || LaneIndex() >= kTileRows || of_piece >= p.rows) return;
  const int64_t group = first_chunk / kGroupChunks;
  p.scales[group * p.rows + of_piece] =
      __uint_as_float(weight.scaling[group * padded_rows + p.first_row + of_piece]);
}

BH_DEVICE bool IsFinite(float x) { return fabsf(x) <= 3.4028235e38F; }

BH_DEVICE float InputAt(const QuantizeInputsParameters& p, int64_t at) {
  return p.numbers == Numbers::kF32 ? static_cast<const float*>(p.x)[at]
                                    : F32OfBf16(static_cast<const uint16_t*>(p.x)[at]);
}

// Four from `at` on, an aligned place.
BH_DEVICE Floats4 FourInputsAt(const QuantizeInputsParameters& p, int64_t at) {
  if (p.numbers == Numbers::kF32) return LoadFour(static_cast<const float*>(p.x) + at);
  const auto pairs = LoadVector<Words2>(static_cast<const uint16_t*>(p.x) + at);
  return {{__uint_as_float(pairs.w[0] << 16), __uint_as_float(pairs.w[0] & 0xFFFF0000U),
           __uint_as_float(pairs.w[1] << 16), __uint_as_float(pairs.w[1] & 0xFFFF0000U)}};
}

// A warp takes a group of a row, a lane four of its inputs.
BH_KERNEL(kQuantizeWarps* kWarp)
QuantizeInputs(QuantizeInputsParameters p) {
  GridDependencySynchronize();
  const int group = int(blockIdx.y) * kQuantizeWarps + WarpIndex();
  if (group * kFp8Group >= p.depth) return;
  const int row = int(blockIdx.x);
  const int input = group * kFp8Group + LaneIndex() * 4;
  const int64_t at = row * p.x_stride + input;
  Floats4 x = {};
  if (p.vec4) {
    if (input < p.inputs) x = FourInputsAt(p, at);
  } else {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (input + i < p.inputs) x.v[i] = InputAt(p, at + i);
    }
  }
  float largest = 0;
  BH_UNROLL
  for (const float v : x.v) {
    if (IsFinite(v)) largest = fmaxf(largest, fabsf(v));
  }
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, mask));
  }
  float scale = largest / kLargestE4m3;
  if (scale == 0.0F) scale = 1.0F;
  uint32_t codes = 0;
  BH_UNROLL
  for (int i = 0; i < 4; ++i) codes |= uint32_t{E4m3OfF32(x.v[i], scale)} << (8 * i);
  if (input < p.depth) {
    *reinterpret_cast<uint32_t*>(p.codes + static_cast<int64_t>(row) * p.depth + input) = codes;
  }
  if (LaneIndex() == 0) p.scales[static_cast<int64_t>(group) * p.scales_stride + row] = scale;
}

}  // namespace

CudaKernelOf<UnpackFp8Parameters> UnpackFp8Kernel() {
  return KernelOf<kUnpackWarps * kWarp>("unpack fp8 codes", UnpackFp8);
}

CudaKernelOf<QuantizeInputsParameters> QuantizeInputsKernel() {
  return KernelOf<kQuantizeWarps * kWarp>("quantize_inputs fp8", QuantizeInputs);
}

const KernelRegistration kRegistered(UnpackFp8Kernel(), QuantizeInputsKernel());

}  // namespace bulkhead::cuda
