// AMX's tile registers in software: what simd/avx512amx has as instructions, to the bit, with a
// trap where those are faults.
#pragma once

#include <stdint.h>

#include "kernels/simd/tile_shapes.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

struct TileRegister {
  int rows = 0;
  int row_bytes = 0;
  uint8_t at[kTileRegisterRows][kTileRegisterBytes] = {};
};
thread_local TileRegister tile_registers[kTiles];

TileRegister& ConfiguredTile(int tile) {
  TileRegister& found = tile_registers[tile];
  if (found.rows == 0) __builtin_trap();
  return found;
}

void ConfigureTiles(const TileShapes& shapes) {
  if (shapes.palette != 1 || shapes.start_row != 0) __builtin_trap();
  for (int i = 0; i < kTiles; ++i) {
    const int rows = shapes.rows[i];
    const int row_bytes = shapes.row_bytes[i];
    if (rows > kTileRegisterRows || row_bytes > kTileRegisterBytes) __builtin_trap();
    if ((rows == 0) != (row_bytes == 0)) __builtin_trap();
    tile_registers[i] = TileRegister{rows, row_bytes, {}};
  }
}

void ReleaseTiles() {
  for (TileRegister& tile : tile_registers) tile = TileRegister{};
}

template <int kTile>
void ZeroTile() {
  TileRegister& tile = ConfiguredTile(kTile);
  __builtin_memset(tile.at, 0, sizeof(tile.at));
}

template <int kTile>
void LoadTile(const void* from, int64_t stride) {
  TileRegister& tile = ConfiguredTile(kTile);
  __builtin_memset(tile.at, 0, sizeof(tile.at));
  for (int row = 0; row < tile.rows; ++row) {
    __builtin_memcpy(tile.at[row], static_cast<const char*>(from) + row * stride, tile.row_bytes);
  }
}

template <int kTile>
void StoreTile(void* to, int64_t stride) {
  const TileRegister& tile = ConfiguredTile(kTile);
  for (int row = 0; row < tile.rows; ++row) {
    __builtin_memcpy(static_cast<char*>(to) + row * stride, tile.at[row], tile.row_bytes);
  }
}

template <int kSums, int kInputs, int kWeights>
void DotTiles() {
  TileRegister& sums = ConfiguredTile(kSums);
  const TileRegister& inputs = ConfiguredTile(kInputs);
  const TileRegister& weights = ConfiguredTile(kWeights);
  if (sums.row_bytes % 4 != 0 || inputs.row_bytes % 4 != 0 || sums.rows != inputs.rows ||
      sums.row_bytes != weights.row_bytes || inputs.row_bytes / 4 != weights.rows) {
    __builtin_trap();
  }
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      uint32_t sum;
      __builtin_memcpy(&sum, sums.at[m] + 4 * n, sizeof(sum));
      for (int k = 0; k < inputs.row_bytes; ++k) {
        const int input = static_cast<int8_t>(inputs.at[m][k]);
        sum += static_cast<uint32_t>(input * weights.at[k / 4][4 * n + k % 4]);
      }
      __builtin_memcpy(sums.at[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

}  // namespace
}  // namespace bulkhead::BH_ISA
