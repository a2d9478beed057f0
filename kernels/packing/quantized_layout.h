// Memory layout of a quantised weight: a header, the cells, with an index the group of each input,
// then panels of 32 outputs. A panel is one stream: for each cell codes, then scales, then zeros
//   int8  [inputs/4][2][16][4] u8   four inputs of column i (+ 16); 32 scales, f16 or bf16; the
//                                   zero is 128
//   int4  [inputs/4][16][4] u8      low nibbles column i, high nibbles column 16 + i; 32 scales,
//                                   f16 or bf16; 32 u8 zeros
//   fp4   as int4; 32 u8 scales (e8m0); or e4m3, and after the last cell 32 f32 factors
//   fp8   as int8; 32 f32 scales
// with an index the scales and zeros of all groups follow the last cell. Inputs are padded with
// code 0 to a multiple of 4. Plain C++: kernel sources include this.
#pragma once

#include <stdint.h>

#include "kernels/packing/panel_format.h"

namespace bulkhead {

inline constexpr int kMaxCellInputs = 128;

struct PackedCell {
  int32_t begin;     // in the share's inputs
  int32_t count;     // inputs
  int32_t slice;     // in the product's slices
  int32_t words;     // of 4 inputs each
  int64_t offset;    // of its codes in a panel
  int64_t x_offset;  // of its codes in a row of quantised inputs
};

struct QuantizedPanels {
  const PackedCell* cells;
  int num_cells;
  const char* panels;
  int64_t panel_bytes;
  const int32_t* group_of_input;  // null without an index
  int64_t scales_offset;          // in a panel, with an index: [groups][32]; factors
  int64_t zeros_offset;           // [groups][32] u8, with an index
  int64_t x_bytes;                // per row of quantised inputs
  bool bf16_scales;
  bool has_factors;  // factors of the scales: [32] f32, at scales_offset
};

// For one panel; null if scales have none.
static inline const float* FactorsOf(const QuantizedPanels& weight, const char* panel) {
  return weight.has_factors ? reinterpret_cast<const float*>(panel + weight.scales_offset)
                            : nullptr;
}

static constexpr int QuantizedWordBytes(PanelFormat format) {
  return format == PanelFormat::kInt8 || format == PanelFormat::kFp8 ? 128 : 64;
}
// Bytes per cell (per group, with an index) in a panel.
static constexpr int ScaleBytes(PanelFormat format) {
  return kPanelColumns * (format == PanelFormat::kFp8 ? 4 : format == PanelFormat::kFp4 ? 1 : 2);
}
static constexpr int ZeroBytes(PanelFormat format) {
  return format == PanelFormat::kInt4 ? kPanelColumns : 0;
}

}  // namespace bulkhead
