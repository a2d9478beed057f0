// Conversion of 8- or 4-bit codes to bf16, (code - zero) scale rounded: the operands of products
// for many tokens. nvfp4 is exact and without the row's factor, which is applied to the sums.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "kernels/packing/cuda_layout.h"
#include "memory/weight_format.h"

namespace bulkhead::cuda {

// The factor of a row of nvfp4; the last row's for rows beyond it.
BH_DEVICE float FactorOf(const PackedWeight& weight, int row) {
  return __uint_as_float(weight.scaling[row < weight.rows ? row : weight.rows - 1]);
}

// A lane's part of one chunk of a tile of rows: 8 inputs of the rows lane / 4 and 8 more.
template <WeightFormat kFormat>
struct Codes {
  static constexpr bool k8Bits = WeightBits(kFormat) == 8;
  static constexpr int kWords = k8Bits ? 4 : 2;
  uint32_t words[kWords] = {};
  uint32_t scaling[2] = {};
  uint32_t scales = 0;  // of the lane's group; nvfp4: bytes of the two rows

  // Does nothing for a tile after the last row.
  BH_DEVICE void Load(const PackedWeight& weight, int row_tile, unsigned chunk) {
    const int64_t padded_rows = (weight.rows + kTileRows - 1) / kTileRows * kTileRows;
    if (row_tile * kTileRows >= padded_rows) return;
    const auto* const all = reinterpret_cast<const uint32_t*>(weight.numbers);
    const int64_t lane_of_chunk =
        k8Bits
            ? (static_cast<int64_t>(row_tile) * (weight.depth / kChunkInputs) + chunk) * kWarp
            : (static_cast<int64_t>(row_tile) * (weight.depth / kDepthGranule) + chunk / 2) * kWarp;
    const uint32_t* const from =
        all + (lane_of_chunk + LaneIndex()) * 4 + (k8Bits ? 0 : chunk % 2 * 2);
    BH_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = from[i];
    if constexpr (IsFp4(kFormat)) {
      const int64_t step = lane_of_chunk / kWarp;
      scales =
          GroupScales(
              kFormat,
              weight)[step * Fp4ScaleWords(kFormat) + Fp4ScaleWordOfLane(kFormat, LaneIndex())] >>
          chunk % 2 * 16;
    }
    if constexpr (kFormat == WeightFormat::kMxfp4) {
      scaling[0] = E8m0ScaleBits(scales, 0);
      scaling[1] = E8m0ScaleBits(scales, 1);
    }
    if constexpr (IsFp4(kFormat)) return;
    const int64_t row =
        CellOf(weight.chunk_cell[chunk]) * padded_rows + row_tile * kTileRows + LaneIndex() / 4;
    scaling[0] = weight.scaling[row];
    scaling[1] = weight.scaling[row + 8];
  }

  // The inputs of the first or the second row.
  BH_DEVICE Words4 Numbers(int row) const {
    Words4 numbers;
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFormat == WeightFormat::kNvfp4) {
        numbers.w[i] = FloatPair(i / 2, row, i % 2);
      } else {
        numbers.w[i] = Bf16Pair(Number(row, 2 * i), Number(row, 2 * i + 1));
      }
    }
    return numbers;
  }

  BH_DEVICE float Number(int row, int input) const {
    const int product = input / 4;  // of four inputs each
    const float scale = __uint_as_float(ScaleBits(kFormat, scaling[row]));
    if constexpr (HasFloatCodes(kFormat)) {
      const uint32_t pair = FloatPair(product, row, input % 4 / 2);
      return F32OfBf16(static_cast<uint16_t>(pair >> (input % 2 * 16))) * scale;
    }
    const float zero = k8Bits ? 128.0F : static_cast<float>(scaling[row] & kInt4ZeroBits);
    const uint32_t code =
        k8Bits ? words[2 * product + row] >> (input % 4 * 8) & 255
               : words[product] >> (input % 2 * 16 + (input % 4 / 2 * 2 + row) * 4) & 15;
    return (static_cast<float>(code) - zero) * scale;
  }

  // Two of the four inputs of a product.
  BH_DEVICE uint32_t FloatPair(int product, int row, int half) const {
    if constexpr (k8Bits) {
      return E4m3WeightPairAt(words[2 * product + row], 2 * half);
    } else {
      const uint32_t codes = words[product] >> ((half * 2 + row) * 4);
      if constexpr (kFormat == WeightFormat::kMxfp4) return E2m1Pair(codes);
      uint32_t of_row[2];
      Nvfp4Scales(scales, 0, of_row);
      return ScaledE2m1Pair(codes, of_row[row]);
    }
  }
};

}  // namespace bulkhead::cuda
