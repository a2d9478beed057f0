// The products in int8: what crosses from the CPU backend into int8_simd.cc, compiled per
// instruction set. kernels/matmul/input_quantizer.h and ActivationDType (kernels/backend.h) say
// what is computed.
#pragma once

#include <stdint.h>

#include "kernels/packing/quantized_layout.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// Rows of quantised inputs, in tiles that lie one behind the other: of a tile its cells' codes
// [words][rows of the tile][4], padded with 0 to fours, and for each cell scales and sums of codes
// [rows of the tile].
struct QuantizedInputs {
  int8_t* codes;
  int64_t row_bytes;  // QuantizedPanels::x_bytes
  float* scales;
  int32_t* sums;
  int64_t cells;  // of a row
};

struct InputTile {
  int64_t begin;  // its first row
  int64_t rows;
};

// The rows in `tiles` tiles that differ by a row at most.
static constexpr InputTile InputTileOf(int64_t rows, int64_t tiles, int64_t tile) {
  const int64_t begin = rows * tile / tiles;
  return {begin, rows * (tile + 1) / tiles - begin};
}

struct Int8Product {
  const QuantizedPanels* weight;
  bool is_int4;
  QuantizedInputs x;
  int64_t rows;
  int64_t tiles;
  int64_t outputs;           // N
  const int64_t* k_borders;  // [num_slices + 1]
  int num_slices;
  float* out;  // [rows, outputs]
  int64_t out_stride;
};

// The part of a product that one thread computes.
struct Int8Part {
  int64_t panel_begin;
  int64_t panel_end;
  int64_t tile_begin;
  int64_t tile_end;
};

// Rows of a tile at most.
BH_PER_ISA_AND_VNNI(extern const int kInt8MostTileRows)
// One cell of a tile of x from `inputs` [rows, stride].
BH_PER_ISA_AND_VNNI(void QuantizeCell(const QuantizedPanels& weight, const float* inputs,
                                      int64_t stride, const InputTile& tile, int cell_index,
                                      const QuantizedInputs& x))
// No scratch.
BH_PER_ISA_AND_VNNI(void MultiplyInt8(const Int8Product& product, const Int8Part& part))

}  // namespace bulkhead
