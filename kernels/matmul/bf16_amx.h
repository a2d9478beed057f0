// Products in bf16 in AMX's tile registers: the interface between the CPU backend and bf16_amx.cc.
// ActivationDType::kBf16Amx (kernels/backend.h) defines the results.
#pragma once

#include <stdint.h>

#include "kernels/matmul/op.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

inline constexpr int64_t kBf16TileRows = 16;
inline constexpr int64_t kBf16TileInputs = 32;  // per instruction
inline constexpr int64_t kBf16TileNumbers = kBf16TileRows * kBf16TileInputs;

// Rows of inputs rounded to bf16: [rows / 16][tiles of a row][16][32]. Each slice begins with a
// tile, and its last one is padded with 0. Padding rows may hold anything.
constexpr int64_t Bf16TilesOfRow(int64_t inputs, int num_slices) {
  return inputs / kBf16TileInputs + num_slices;
}
// Elements of `rows` rows of at most `inputs` inputs.
constexpr int64_t Bf16TileInputsOf(int64_t rows, int64_t inputs) {
  return (rows + kBf16TileRows - 1) / kBf16TileRows * Bf16TilesOfRow(inputs, kMaxSlices) *
         kBf16TileNumbers;
}

// Scratch of a thread: chains and unfinished subtrees of at least one row tile.
inline constexpr int64_t kBf16TileScratchPerRow = (1 + kMaxSliceLevels) * kPanelColumns;
inline constexpr int64_t kBf16TileScratchFloats = kBf16TileRows * kBf16TileScratchPerRow;
// The same for all rows of a part that are worked on together.
inline constexpr int64_t kBf16TileGroupFloats = 480 * kBf16TileScratchPerRow;

// Rounds row `row` of product.x into `inputs` of the whole product.
BH_WITH_AMX(void RoundRowToTiles(const Product& product, int64_t row, uint16_t* inputs))
// Does not read product.x. part.row_begin is a multiple of kBf16TileRows; its scratch is
// kBf16TileScratchPerRow floats per row, including the last tile's, up to kBf16TileGroupFloats;
// with one slice, or with slice_sums, a quarter.
BH_WITH_AMX(void MultiplyBf16InTiles(const Product& product, const uint16_t* inputs,
                                     const ProductPart& part))

}  // namespace bulkhead
