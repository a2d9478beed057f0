// How the CUDA backend packs a weight, so that every byte goes once from memory directly into the
// registers that the tensor cores need. Plain C++: kernels and host code include this.
//
// Inputs are cut into chunks of 32. Within a chunk lane 4g + j of a warp reads row g and row g + 8
// of a tile of 16 rows, inputs 8j .. 8j + 7: two products of 16 inputs, the first with 8j + {0, 1}
// and 8j + {2, 3} in a fragment's columns 2j and 2j + 8, the second with the other four.
// Activations in their own order are read the same way, 16 bytes at a time.
//
//   bf16, f16   [rows][depth], row-major
//   f32         [rows][depth], row-major; for products without tensor cores
//   int8, fp8   [rows / 16][depth / 32][lane][16 bytes]: four words {first product: row g, row g +
//               8; second product: row g, row g + 8} of four inputs each
//   int4, *fp4  [rows / 16][depth / 64][lane][16 bytes]: four words, one per product of two chunks;
//               the low half has the first inputs of the pairs, the high half the second ones; of
//               each half digit i is {row g, row g + 8, row g, row g + 8} of the inputs
//               {0, 0, 2, 2}
//
// Rows are padded with zeros to a multiple of 16. Depth is a multiple of 64: the inputs of each
// cell (memory/linear.h), in the order of the groups, padded to whole chunks.
#pragma once

#include <stdint.h>

#include "memory/weight_format.h"

namespace bulkhead::cuda {

static constexpr int kChunkInputs = 32;
static constexpr int kDepthGranule = 64;
static constexpr int kTileRows = 16;

// Formats of weights that tensor cores multiply.
inline constexpr WeightFormat kProductFormats[] = {
    WeightFormat::kBF16,  WeightFormat::kF16,   WeightFormat::kInt8, WeightFormat::kInt4,
    WeightFormat::kMxfp4, WeightFormat::kNvfp4, WeightFormat::kFp8};

// A packed weight.
struct PackedWeight {
  const unsigned char* numbers = nullptr;
  // Only quantised formats:
  // [cells][padded rows]: f32 scales, for int4 ScalingOfInt4; for nvfp4, which is one cell, the
  // rows' factors times kNvfp4Factor. Then GroupScales.
  const uint32_t* scaling = nullptr;
  const int32_t* chunk_cell = nullptr;  // [depth / 32] CellOf, ChunksLeftOf; cells in their order
  // [depth] the input at each place; -1: none. Null: the inputs in order, then none.
  const int32_t* input_at = nullptr;
  int rows = 0;    // N
  int inputs = 0;  // K
  int depth = 0;
};

// A weight of the same shape, `bytes` later.
template <WeightFormat kFormat>
static constexpr PackedWeight FurtherWeight(PackedWeight weight, int64_t bytes) {
  weight.numbers += bytes;
  if constexpr (IsQuantized(kFormat)) {  // groups are at the same places in all
    weight.scaling += bytes / 4;
  }
  return weight;
}

// A chunk's cell, and the cell's remaining chunks from here on.
static constexpr int kMaxCells = 1 << 16;
static constexpr int32_t ChunkCell(int64_t cell, int64_t chunks_left) {
  return static_cast<int32_t>(chunks_left * kMaxCells + cell);
}
static constexpr int CellOf(int32_t chunk_cell) { return chunk_cell & (kMaxCells - 1); }
static constexpr int ChunksLeftOf(int32_t chunk_cell) { return chunk_cell >> 16; }

// Formats whose codes are numbers, without a zero.
static constexpr bool HasFloatCodes(WeightFormat format) {
  return format == WeightFormat::kFp8 || IsFp4(format);
}

// int4: the scale's f32, from an f16 or bf16 number, has its last 13 bits free: the last 5 are the
// zero. Codes enter products as numbers 128 greater, and so does the zero.
static constexpr uint32_t kInt4ZeroBits = 31;
static constexpr uint32_t ScalingOfInt4(uint32_t scale_bits, uint32_t zero) {
  return scale_bits | zero;
}
static constexpr uint32_t ScaleBits(WeightFormat format, uint32_t scaling) {
  return format == WeightFormat::kInt4 ? scaling & ~kInt4ZeroBits : scaling;
}
static constexpr uint32_t Int4ZeroAnd128Bits(uint32_t scaling) {
  return 0x43000000U | (scaling & kInt4ZeroBits) << 16;
}

// Position of the scale of a group of a row's inputs, for mxfp4 (E8M0, one group per chunk) and
// nvfp4 (E4M3, two): [rows / 16][depth / 64][8][groups of a chunk], words of the rows g and g + 8
// of the first chunk, then of the second.
static constexpr int Fp4Groups(WeightFormat format) {
  return format == WeightFormat::kNvfp4 ? 2 : 1;
}
static constexpr int Fp4ScaleWords(WeightFormat format) { return 8 * Fp4Groups(format); }
static constexpr int64_t Fp4ScalePlace(WeightFormat format, int64_t row, int64_t group,
                                       int64_t depth) {
  const int groups = Fp4Groups(format);
  const int64_t chunk = group / groups;
  const int64_t step = row / kTileRows * (depth / kDepthGranule) + chunk / 2;
  const int64_t word = step * Fp4ScaleWords(format) + row % 8 * groups + group % groups;
  return word * 4 + chunk % 2 * 2 + row % kTileRows / 8;
}
// The group scales that Fp4ScalePlace refers to.
static constexpr const uint32_t* GroupScales(WeightFormat format, const PackedWeight& weight) {
  const int padded_rows = (weight.rows + kTileRows - 1) / kTileRows * kTileRows;
  return format == WeightFormat::kNvfp4 ? weight.scaling + padded_rows : weight.scaling;
}
// The word of a step that has the scales of a lane's codes.
static constexpr int Fp4ScaleWordOfLane(WeightFormat format, int lane) {
  return lane / (4 / Fp4Groups(format));
}

// The bits of nvfp4's codes, as bf16, are 2^126 less: a scale is multiplied by 2^118, which keeps
// it exact in bf16, and the factor by the rest. The products are exact: they have 6 bits.
static constexpr float kNvfp4Factor = 256.0F;

// The scale of mxfp4 in byte `at` of such a word, as the bits of an f32; 2^-127 is subnormal. It
// applies to E2M1 values, not to steps (memory/fp4.h).
static constexpr uint32_t E8m0ScaleBits(uint32_t scales, int at) {
  constexpr uint32_t k2ToMinus127 = 0x00400000U;
  const uint32_t bits = (scales >> (8 * at) & 0xFFU) << 23;
  return bits > k2ToMinus127 ? bits : k2ToMinus127;
}

// The position of the code of a row and a place in the depth.
struct CodePlace {
  int64_t word = 0;  // 32 bits each
  int shift = 0;
};

static constexpr CodePlace Int8Place(int64_t row, int64_t at, int64_t depth) {
  const int64_t tile = row / kTileRows * (depth / kChunkInputs) + at / kChunkInputs;
  const int in_chunk = static_cast<int>(at % kChunkInputs);
  const int lane = static_cast<int>(row % 8) * 4 + in_chunk / 8;
  const int word = in_chunk % 8 / 4 * 2 + static_cast<int>(row % kTileRows / 8);
  return {(tile * 32 + lane) * 4 + word, in_chunk % 4 * 8};
}

static constexpr CodePlace Int4Place(int64_t row, int64_t at, int64_t depth) {
  const int64_t tile = row / kTileRows * (depth / kDepthGranule) + at / kDepthGranule;
  const int in_chunk = static_cast<int>(at % kChunkInputs);
  const int lane = static_cast<int>(row % 8) * 4 + in_chunk / 8;
  const int word = static_cast<int>(at % kDepthGranule) / kChunkInputs * 2 + in_chunk % 8 / 4;
  const int digit = in_chunk % 4 / 2 * 2 + static_cast<int>(row % kTileRows / 8);
  return {(tile * 32 + lane) * 4 + word, in_chunk % 2 * 16 + digit * 4};
}

}  // namespace bulkhead::cuda
