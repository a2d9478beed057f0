// Products in int8: the interface between the CPU backend and int8_simd.cc, compiled per
// instruction set. kernels/matmul/input_quantizer.h and ActivationDType (kernels/backend.h) define
// the results.
#pragma once

#include <stdint.h>

#include "kernels/matmul/slice_sums.h"
#include "kernels/packing/quantized_layout.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// Rows of quantised inputs, in consecutive tiles: per tile its cells' codes [words][rows of the
// tile][4], or by row [rows of the tile][words][4], padded with 0 to whole words, and for each cell
// scales and sums of codes [rows of the tile].
struct QuantizedInputs {
  int8_t* codes;
  int64_t row_bytes;  // QuantizedPanels::x_bytes
  float* scales;
  int32_t* sums;
  int64_t cells;        // per row
  bool by_row = false;  // as MultiplyInt8InTiles needs them
};

struct InputTile {
  int64_t begin;  // its first row
  int64_t rows;
};

// The rows of tile `tile`, if `tiles` tiles differ by at most one row.
static constexpr InputTile InputTileOf(int64_t rows, int64_t tiles, int64_t tile) {
  const int64_t begin = rows * tile / tiles;
  return {begin, rows * (tile + 1) / tiles - begin};
}

struct Int8Product {
  const QuantizedPanels* weight;
  PanelFormat format;
  QuantizedInputs x;
  int64_t rows;
  int64_t tiles;
  int64_t outputs;           // N
  const int64_t* k_borders;  // [num_slices + 1]
  int num_slices;
  float* out;  // [rows, outputs]
  int64_t out_stride;
  // For MultiplyInt8InTiles: slices are added to these instead of being joined into `out`; or null.
  const SliceSums* slice_sums = nullptr;
};

// The part of a product that one thread computes.
struct Int8Part {
  int64_t panel_begin;
  int64_t panel_end;
  int64_t tile_begin;
  int64_t tile_end;
};

inline constexpr int kMaxInt8TileRowsOfAnyIsa = 12;
// Maximum rows of a tile.
BH_PER_ISA_AND_VNNI(extern const int kInt8MaxTileRows)
// Rows of inputs before they are quantised; `rows` as in Product::x_rows.
struct FloatRows {
  const float* x;
  int64_t stride;
  const int32_t* rows;
};
// Quantises one cell of a tile of x.
BH_PER_ISA_AND_VNNI(void QuantizeCell(const QuantizedPanels& weight, const FloatRows& inputs,
                                      const InputTile& tile, int cell_index,
                                      const QuantizedInputs& x))
// Needs no scratch.
BH_PER_ISA_AND_VNNI(void MultiplyInt8(const Int8Product& product, const Int8Part& part))
// The chains of one tile of one panel, slice by slice: into sums [num_slices][rows of the
// tile][32].
BH_PER_ISA_AND_VNNI(void MultiplyInt8Slices(const Int8Product& product, int64_t panel, int64_t tile,
                                            float* sums))

// Products in AMX's tile registers (int8_amx.cc), from kMinAmxRows rows on; the same bits. `inputs`
// are by row, in tiles of at most kAmxTileRows rows; up to 128 bytes after a tile's rows are also
// read, without effect. `scratch`: kAmxScratchFloatsPerRow per row of the part, up to
// kAmxGroupFloats; with one slice, or with slice_sums, a quarter.
inline constexpr int64_t kMinAmxRows = 13;
inline constexpr int64_t kAmxTileRows = 16;
inline constexpr int64_t kAmxScratchFloatsPerRow = 4 * kPanelColumns;
// For all rows of a part that are worked on together.
inline constexpr int64_t kAmxGroupFloats = 480 * kAmxScratchFloatsPerRow;
BH_WITH_AMX(void MultiplyInt8InTiles(const Int8Product& product, const Int8Part& part,
                                     float* scratch))

}  // namespace bulkhead
