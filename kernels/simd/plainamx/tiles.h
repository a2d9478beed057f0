// AMX's tile registers in software: the functions of simd/avx512amx, bit for bit, with a trap where
// the instructions fault.
#pragma once

#include <stdint.h>
#include <xmmintrin.h>

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
void LoadPassingTile(const void* from, int64_t stride) {
  LoadTile<kTile>(from, stride);
}

template <int kTile>
void StoreTile(void* to, int64_t stride) {
  const TileRegister& tile = ConfiguredTile(kTile);
  for (int row = 0; row < tile.rows; ++row) {
    __builtin_memcpy(static_cast<char*>(to) + row * stride, tile.at[row], tile.row_bytes);
  }
}

void CheckShapes(const TileRegister& sums, const TileRegister& inputs,
                 const TileRegister& weights) {
  if (sums.row_bytes % 4 != 0 || inputs.row_bytes % 4 != 0 || sums.rows != inputs.rows ||
      sums.row_bytes != weights.row_bytes || inputs.row_bytes / 4 != weights.rows) {
    __builtin_trap();
  }
}

template <int kSums, int kInputs, int kWeights>
void DotTiles() {
  TileRegister& sums = ConfiguredTile(kSums);
  const TileRegister& inputs = ConfiguredTile(kInputs);
  const TileRegister& weights = ConfiguredTile(kWeights);
  CheckShapes(sums, inputs, weights);
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      uint32_t sum;
      __builtin_memcpy(&sum, sums.at[m] + 4 * n, sizeof(sum));
      for (int k = 0; k < inputs.row_bytes; ++k) {
        const int input = static_cast<int8_t>(inputs.at[m][k]);
        const int weight = static_cast<int8_t>(weights.at[k / 4][4 * n + k % 4]);
        sum += static_cast<uint32_t>(input * weight);
      }
      __builtin_memcpy(sums.at[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

// Continues a row of `sums` with the pairs of `inputs` and `weights`. Not inlined, so that nothing
// in it moves out of the caller's mode.
[[gnu::noipa]] void AddBf16Row(const uint8_t* inputs, const TileRegister& weights, uint8_t* sums) {
  F32x16 of_even = Zero();
  F32x16 of_odd = Zero();
  for (int k = 0; k < weights.rows; ++k, inputs += 4) {
    uint32_t columns[kLanes];
    uint32_t pair;
    __builtin_memcpy(columns, weights.at[k], sizeof(columns));
    __builtin_memcpy(&pair, inputs, sizeof(pair));
    of_even = Fma(Set1(F32OfBits(pair << 16)), LoadBf16Low(columns), of_even);
    of_odd = Fma(Set1(F32OfBits(pair & 0xFFFF0000u)), LoadBf16High(columns), of_odd);
  }
  F32x16 sum;
  __builtin_memcpy(&sum, sums, sizeof(sum));
  sum = Add(sum, Add(of_even, of_odd));
  __builtin_memcpy(sums, &sum, sizeof(sum));
}

template <int kSums, int kInputs, int kWeights>
void DotBf16Tiles() {
  constexpr unsigned kFlushMode = 0x9FC0;  // to nearest even, denormals as 0, no exceptions
  TileRegister& sums = ConfiguredTile(kSums);
  const TileRegister& inputs = ConfiguredTile(kInputs);
  const TileRegister& weights = ConfiguredTile(kWeights);
  CheckShapes(sums, inputs, weights);
  // Columns after the last one are 0 in all three.
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kFlushMode);
  for (int m = 0; m < sums.rows; ++m) AddBf16Row(inputs.at[m], weights, sums.at[m]);
  _mm_setcsr(before);
}

BH_INLINE I32x16 SubBytes(I32x16 a, I32x16 b) {
  uint8_t bytes[2][64];
  __builtin_memcpy(bytes[0], &a, sizeof(a));
  __builtin_memcpy(bytes[1], &b, sizeof(b));
  for (int i = 0; i < 64; ++i) bytes[0][i] = static_cast<uint8_t>(bytes[0][i] - bytes[1][i]);
  __builtin_memcpy(&a, bytes[0], sizeof(a));
  return a;
}

BH_INLINE void StoreRounded(uint16_t* p, F32x16 a, F32x16 b) {
  for (int i = 0; i < 2 * kLanes; ++i) {
    const float x = i < kLanes ? a.v[i] : b.v[i - kLanes];
    const bool is_denormal = __builtin_fabsf(x) < 0x1p-126f;
    p[i] = Bf16OfF32(is_denormal ? __builtin_copysignf(0.0f, x) : x);
  }
}

}  // namespace
}  // namespace bulkhead::BH_ISA
