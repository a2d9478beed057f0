// Attention over a cache in bf16 in AMX's tile registers (AttentionDType::kBf16Amx): what crosses
// from the CPU backend into bf16_amx.cc. kernels/attend/reference.cc says what is computed.
#pragma once

#include <stdint.h>

#include "kernels/attend/op.h"
#include "kernels/simd/exp_constants.h"
#include "kernels/simd/per_isa.h"
#include "kernels/simd/tile_shapes.h"

namespace bulkhead {

// Rows that a unit aims at: four pairs of tiles, for which keys and values are interleaved once.
inline constexpr int kAttentionTileUnitRows = 128;

// Numbers of the head's dimension, and tokens, that one instruction takes.
inline constexpr int kAttentionTileInputs = 32;
// Of the head's dimension.
static constexpr int64_t AttentionKeyTiles(int64_t head_dim) {
  return (head_dim + kAttentionTileInputs - 1) / kAttentionTileInputs;
}
// Two tiles of columns of a value.
static constexpr int64_t AttentionValueTiles(int64_t value_dim) {
  constexpr int64_t kColumns = 2 * kAttentionLanes;
  return (value_dim + kColumns - 1) / kColumns;
}
static constexpr int64_t PaddedToTiles(int64_t rows) {
  return (rows + kTileRegisterRows - 1) / kTileRegisterRows * kTileRegisterRows;
}

// Floats of scratch per thread, for at most `max_rows` rows: queries, a chunk's keys and values,
// scores and outputs of two tiles of rows, and per row the output, m, l and the visible range.
static constexpr int64_t AttentionTileScratchFloats(int64_t max_rows, int head_dim, int value_dim) {
  constexpr int64_t kTileFloats = kTileRegisterRows * kTileRegisterBytes / 4;
  const int64_t rows = PaddedToTiles(max_rows);
  const int64_t key_tiles = AttentionKeyTiles(head_dim);
  const int64_t width = PaddedHeadDim(value_dim);
  const int64_t chunk_tiles = kAttentionChunk / kTileRegisterRows;
  return rows / kTileRegisterRows * key_tiles * kTileFloats +
         chunk_tiles * key_tiles * kTileFloats +
         chunk_tiles * AttentionValueTiles(value_dim) * kTileFloats +
         2 * kTileRegisterRows * (kAttentionWeightStride + width) + rows * (width + 4);
}

// `scratch`: AttentionTileScratchFloats, 64-byte aligned.
BH_WITH_AMX(void AttendUnitInTiles(const AttentionCall& call, const AttentionUnit& unit,
                                   float* scratch))

}  // namespace bulkhead
