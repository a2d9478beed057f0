// The kernels of MatMul: their parameters and launch shapes.
#pragma once

#include <stdint.h>

#include <optional>

#include "kernels/cuda/parameters.h"
#include "kernels/packing/cuda_layout.h"
#include "memory/cuda_kernel.h"
#include "memory/weight_format.h"

namespace bulkhead::cuda {

// out[i][at] = x[t][input_at[at]], or x[t][at] without a map, as bf16 or f16; 0 if there is none. t
// is row_at[i], or i.
struct GatherInputsParameters {
  ConstRows x;
  const uint16_t* rounded = nullptr;  // instead of x.data, in out's number format
  const int32_t* row_at = nullptr;
  const int32_t* input_at = nullptr;
  int inputs = 0;
  int depth = 0;
  uint16_t* out = nullptr;  // [rows][depth]
};
CudaKernelOf<GatherInputsParameters> GatherInputsKernel(bool f16);

// ---- products: out[t][n] = sum over the depth of x[t] weight[n]
struct LinearParameters {
  const uint16_t* x = nullptr;  // [T][depth]: f16 for weights in f16, otherwise bf16
  int tokens = 0;
  PackedWeight weight;
  Rows out;
  int parts = 0;  // of the depth (linear_blocks.h); for LinearKernel
};
// Row tiles that a warp multiplies together, so that inputs are read and summed once for all. With
// many of them a block reads less per row; there are enough registers if a warp has one part.
enum class LinearWidth { kNarrow, kWide };
constexpr int LinearRowTiles(WeightFormat format, LinearWidth width = LinearWidth::kNarrow) {
  if (!IsQuantized(format)) return 1;
  return width == LinearWidth::kWide ? 4 : 2;
}
constexpr int LinearRows(WeightFormat format, LinearWidth width = LinearWidth::kNarrow) {
  return LinearRowTiles(format, width) * kTileRows;
}
// For few tokens: grid {padded rows / LinearRows, T / (8 token_tiles)}; token_tiles 1, 2 or 4; for
// kWide, which exists for weights in codes, 2 or 4.
CudaKernelOf<LinearParameters> LinearKernel(WeightFormat format, int token_tiles,
                                            LinearWidth width);

// Steps of 64 inputs that a warp has room for: all but one are being copied.
inline constexpr int kLinearPlaces = 3;
constexpr int LinearStepBytes(WeightFormat format, int token_tiles,
                              LinearWidth width = LinearWidth::kNarrow) {
  const int row_tiles = LinearRowTiles(format, width);
  const int scales = IsFp4(format) ? 64 * row_tiles : 0;  // padded to all banks
  return row_tiles * WeightBits(format) / 4 * 512 + token_tiles * 1024 + scales;
}
// Four tiles of sums leave no registers for more.
template <int kTokenTiles, LinearWidth kWidth = LinearWidth::kNarrow>
inline constexpr int kLinearMaxThreads =
    kTokenTiles == 4 || kWidth == LinearWidth::kWide ? 256 : 512;
// Maximum parts of the depth per warp.
template <int kTokenTiles, LinearWidth kWidth = LinearWidth::kNarrow>
inline constexpr int kLinearMaxWarpParts = kTokenTiles == 1 || kWidth == LinearWidth::kWide ? 1 : 2;

// The same for 9 to 64 tokens and weights in codes, only on GPUs of compute capability 9.0, by
// warpgroup products: grid {row tiles / tiles of a block's warps, 1, blocks of parts}, blocks of
// one or two warpgroups that multiply and one that copies. tokens: per block, 16, 32 or 64. None
// for other formats, and in builds without such GPUs.
struct WarpgroupLinearParameters {
  LinearParameters product;
  // [pairs of parts][T][rows]: if set, gets each pair's share of the product instead of its out.
  float* part_out = nullptr;
};
inline constexpr int kWarpgroupLinearTiles = 2;  // of 16 rows, per multiplying warp
inline constexpr int kWarpgroupLinearMaxThreads = 384;
inline constexpr int kWarpgroupLinearCopyThreads = 128;
std::optional<CudaKernelOf<WarpgroupLinearParameters>> LinearWarpgroupKernel(WeightFormat format,
                                                                             int tokens);

// For many tokens: grid {rows / kGemmTile, T / kGemmTile}. With codes the sum over the depth is the
// ordered sum of its parts (gemm_parts.h): computed by each block, or, with the parts as the grid's
// third dimension, by one block per part, which stores it in part_out.
struct GemmParameters {
  LinearParameters product;
  unsigned part_steps = 0;    // of kGemmStepInputs, per part except the last
  float* part_out = nullptr;  // [parts][T][rows]
};
inline constexpr int kGemmThreads = 256;
inline constexpr int kGemmTile = 128;
inline constexpr int kGemmStepInputs = 32;
inline constexpr int kGemmSharedBytes = 80 << 10;
CudaKernelOf<GemmParameters> GemmKernel(WeightFormat format);

// out[t][n] = the sum of the parts, in order; grid {T, rows / kAddPartsThreads}.
struct AddPartsParameters {
  const float* parts = nullptr;  // [parts][T][rows]
  int num_parts = 0;             // at most kMaxGemmParts
  int tokens = 0;
  int rows = 0;
  Rows out;
};
inline constexpr int kAddPartsThreads = 256;
inline constexpr int kMaxGemmParts = 8;
CudaKernelOf<AddPartsParameters> AddPartsKernel();

// ---- weights in f32, which tensor cores do not multiply, and rows in any format
struct F32ProductParameters {
  const void* x = nullptr;  // [T][inputs]
  int64_t x_stride = 0;
  Numbers numbers = Numbers::kF32;  // of x
  bool vec4 = false;                // four inputs at a time can be read
  const float* weight = nullptr;    // [outputs][depth], 0 after the last input
  int inputs = 0;
  int depth = 0;
  int outputs = 0;
  int tokens = 0;
  Rows out;
};
inline constexpr int kF32FewThreads = 128;
inline constexpr int kF32FewTokens = 8;  // per block
// The most tokens for blocks of few tokens: blocks of a tile are too few to fill a GPU.
inline constexpr int kF32MaxFewTokens = 512;
inline constexpr int kF32FewSharedBytes = kF32FewThreads / 32 * kF32FewTokens * 4;
inline constexpr int kF32TileThreads = 256;
inline constexpr int kF32TileTokens = 16;
inline constexpr int kF32TileOutputs = 32;
inline constexpr int kF32TileSharedBytes =
    kF32TileThreads / 32 * kF32TileTokens * kF32TileOutputs * 4;
// For few tokens: grid {outputs, T / kF32FewTokens}; else {outputs / kF32TileOutputs, T /
// kF32TileTokens}.
CudaKernelOf<F32ProductParameters> LinearF32Kernel(bool few_tokens);

// out[n - first_row] = row n of a quantised weight in bf16, for a library that does not take codes.
// Rows from first_row on, a multiple of 16; grid {rows / 16, depth / (64 kUnpackWarps)}.
struct UnpackParameters {
  PackedWeight weight;
  int first_row = 0;
  uint16_t* out = nullptr;  // [padded rows][depth]
};
inline constexpr int kUnpackWarps = 8;
CudaKernelOf<UnpackParameters> UnpackKernel(WeightFormat format);  // weights in codes

// ---- for a library that multiplies E4M3 by E4M3, with a scale for each group of a row
inline constexpr int kFp8Group = 128;

// The codes of a weight in fp8 whose cells are such groups, in their order, and its scales;
// UnpackKernel's rows and grid.
struct UnpackFp8Parameters {
  PackedWeight weight;
  int first_row = 0;
  int rows = 0;                    // from first_row on, of scales
  unsigned char* codes = nullptr;  // [rows filled up][depth]
  float* scales = nullptr;         // [depth / kFp8Group][rows]
};
CudaKernelOf<UnpackFp8Parameters> UnpackFp8Kernel();

// codes = x / scale in E4M3, 0 behind the last input. A scale is the largest magnitude of the
// group's finite numbers / 448, 1 where that is 0; what is not finite becomes NaN. Grid {rows,
// depth / (kFp8Group kQuantizeWarps)}.
struct QuantizeInputsParameters {
  const void* x = nullptr;  // [rows][inputs], f32 or bf16
  int64_t x_stride = 0;
  Numbers numbers = Numbers::kF32;
  bool vec4 = false;  // four inputs at a time can be read
  int inputs = 0;
  int depth = 0;
  int scales_stride = 0;
  unsigned char* codes = nullptr;  // [rows][depth]
  float* scales = nullptr;         // [depth / kFp8Group][scales_stride]
};
inline constexpr int kQuantizeWarps = 8;
CudaKernelOf<QuantizeInputsParameters> QuantizeInputsKernel();

}  // namespace bulkhead::cuda
