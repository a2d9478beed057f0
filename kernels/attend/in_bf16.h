// Attention over a bf16 cache with bf16 products (AttentionDType::kBf16 and kBf16Amx): the
// interface between the CPU backend and bf16_float_simd.cc and bf16_amx.cc.
// kernels/attend/reference.cc defines the results.
#pragma once

#include <stdint.h>

#include "kernels/attend/op.h"
#include "kernels/simd/exp_constants.h"
#include "kernels/simd/per_isa.h"
#include "kernels/simd/tile_shapes.h"

namespace bulkhead {

// Target rows of a unit, for which keys and values are interleaved once.
inline constexpr int kAttentionTileUnitRows = 128;

// Numbers of the head dimension, or tokens, per instruction.
inline constexpr int kAttentionTileInputs = 32;
// Tiles along the head dimension.
static constexpr int64_t AttentionKeyTiles(int64_t head_dim) {
  return (head_dim + kAttentionTileInputs - 1) / kAttentionTileInputs;
}
static constexpr int64_t PaddedToTiles(int64_t rows) {
  return (rows + kTileRegisterRows - 1) / kTileRegisterRows * kTileRegisterRows;
}

// Where the parts of a thread's scratch begin, in floats.
struct AttentionTileLayout {
  int64_t q;        // [tiles of rows][tiles of d][16][32]; in vectors [pairs of d][words][rows]
  int64_t keys;     // of a chunk, as are the values
  int64_t values;   // by two tiles of columns
  int64_t scores;   // of two row tiles; their bf16 weights replace them
  int64_t chunk_o;  // [two tiles of rows][width]
  int64_t o;        // [rows][width]
  int64_t l;        // [rows], as are the others
  int64_t m;
  int64_t visible;
  int64_t total;
};
static constexpr AttentionTileLayout AttentionTileLayoutOf(int64_t rows, int head_dim,
                                                           int value_dim) {
  constexpr int64_t kTileFloats = kTileRegisterRows * kTileRegisterBytes / 4;
  constexpr int64_t kChunkTiles = kAttentionChunk / kTileRegisterRows;
  const int64_t padded = PaddedToTiles(rows);
  const int64_t row_tiles = padded / kTileRegisterRows;
  const int64_t key_tiles = AttentionKeyTiles(head_dim);
  const int64_t width = PaddedHeadDim(value_dim);
  AttentionTileLayout at = {};
  at.keys = at.q + 2 * row_tiles * key_tiles * kTileFloats;  // if a pair is two words
  at.values = at.keys + kChunkTiles * key_tiles * kTileFloats;
  const int64_t column_pairs = (width / kAttentionLanes + 1) / 2;
  at.scores = at.values + kChunkTiles * column_pairs * kTileFloats;
  at.chunk_o = at.scores + 2 * kTileRegisterRows * kAttentionWeightStride;
  at.o = at.chunk_o + 2 * kTileRegisterRows * width;
  at.l = at.o + padded * width;
  at.m = at.l + padded;
  at.visible = at.m + padded;
  at.total = at.visible + 2 * padded;
  return at;
}

// `scratch`: AttentionTileLayout::total floats for the unit's rows, 64-byte aligned.
BH_WITH_AMX(void AttendUnitInTiles(const AttentionCall& call, const AttentionUnit& unit,
                                   float* scratch))
BH_PER_ISA_AND_BF16(void AttendUnitInPairs(const AttentionCall& call, const AttentionUnit& unit,
                                           float* scratch))

}  // namespace bulkhead
