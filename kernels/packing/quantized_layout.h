// How a quantised weight lies in memory: a header, the cells, with an index the group of each
// input, then panels of 32 outputs. A panel is one stream: for each cell codes, then scales, then
// zeros
//   int8  [inputs/4][2][16][4] u8   four inputs of column i (+ 16), then 32 f16 scales; the zero is
//   128 int4  [inputs/4][16][4] u8      low nibbles column i, high nibbles column 16 + i; 32 f16
//   scales,
//                                   32 u8 zeros
// with an index the scales and zeros of all groups behind the last cell. Inputs are padded to fours
// with code 0. Plain: kernel sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

inline constexpr int kPanelColumns = 32;

struct PackedCell {
  int32_t begin;     // of the share's inputs
  int32_t count;     // inputs
  int32_t slice;     // of the product's
  int32_t words;     // fours of inputs
  int64_t offset;    // of its codes in a panel
  int64_t x_offset;  // of its codes in a row of quantised inputs
};

struct QuantizedPanels {
  const PackedCell* cells;
  int num_cells;
  const char* panels;
  int64_t panel_bytes;
  const int32_t* group_of_input;  // null without an index
  int64_t scales_offset;          // in a panel, with an index: [groups][32] f16
  int64_t zeros_offset;           // likewise [groups][32] u8
  int64_t x_bytes;                // of a row of quantised inputs
};

static constexpr int QuantizedWordBytes(bool is_int4) { return is_int4 ? 64 : 128; }

}  // namespace bulkhead
