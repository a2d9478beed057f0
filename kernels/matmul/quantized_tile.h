// Cells of a quantised panel as f32. Compiled per instruction set; included by simd.cc alone.
#pragma once

#include "kernels/matmul/product_tile.h"
#include "kernels/matmul/quantized_codes.h"

namespace bulkhead::BH_ISA {

// The largest cell: kIndexedCellInputs, and the largest group.

inline constexpr int64_t kTilePrefetchBytes = 2048;

// Input `kInput` of a word, of vector `v` of columns.
template <PanelFormat kFormat, int kInput>
BH_INLINE F32x16 InputOf(const I32x16 (&codes)[2], const CellScaling& scaling, int v) {
  if constexpr (kFormat == PanelFormat::kFp8) {
    return Mul(SmallE4m3Of<kInput>(codes[v]), scaling.scale[v]);
  }
  const I32x16 code = And(ShiftRight<8 * kInput>(codes[v]), SetI1(0xFF));
  // Exact, at most 9 bits times 11, but where the scale has a factor.
  return Mul(Sub(ToF32(code), scaling.zero[v]), scaling.scale[v]);
}

template <PanelFormat kFormat, int kInput>
BH_INLINE void StoreInput(const I32x16 (&codes)[2], const CellScaling& scaling, float* out) {
  for (int v = 0; v < 2; ++v) Store(out + v * kLanes, InputOf<kFormat, kInput>(codes, scaling, v));
}

template <PanelFormat kFormat>
BH_INLINE void StoreInputOf(int input, const I32x16 (&codes)[2], const CellScaling& scaling,
                            float* out) {
  switch (input) {
    case 0:
      return StoreInput<kFormat, 0>(codes, scaling, out);
    case 1:
      return StoreInput<kFormat, 1>(codes, scaling, out);
    case 2:
      return StoreInput<kFormat, 2>(codes, scaling, out);
    default:
      return StoreInput<kFormat, 3>(codes, scaling, out);
  }
}

// out [cell.count][32]
template <PanelFormat kFormat>
void DequantizeCell(const QuantizedPanels& weight, int64_t panel_index, const PackedCell& cell,
                    float* out) {
  constexpr int kWordBytes = QuantizedWordBytes(kFormat);
  const char* panel = weight.panels + panel_index * weight.panel_bytes;
  const char* at = panel + cell.offset;
  const auto scaling_at = [&](const char* scales, const char* zeros) {
    return LoadScaling<kFormat>(scales, zeros, weight.bf16_scales, FactorsOf(weight, panel));
  };
  const char* scales = at + int64_t{cell.words} * kWordBytes;
  const bool indexed = weight.group_of_input != nullptr;
  CellScaling scaling{};
  if (!indexed) scaling = scaling_at(scales, scales + ScaleBytes(kFormat));
  for (int word = 0; word < cell.words; ++word, at += kWordBytes) {
    const int first = 4 * word;
    const int count = cell.count - first < 4 ? cell.count - first : 4;
    float* to = out + first * kPanelColumns;
    const I32x16 codes[2] = {LoadCodes<kFormat>(at, 0), LoadCodes<kFormat>(at, 1)};
    for (int line = 0; line < kWordBytes; line += 64) Prefetch(at + kTilePrefetchBytes + line);
    if (!indexed && count == 4) {
      StoreInput<kFormat, 0>(codes, scaling, to);
      StoreInput<kFormat, 1>(codes, scaling, to + kPanelColumns);
      StoreInput<kFormat, 2>(codes, scaling, to + 2 * kPanelColumns);
      StoreInput<kFormat, 3>(codes, scaling, to + 3 * kPanelColumns);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      if (indexed) {
        const int64_t group = weight.group_of_input[cell.begin + first + i];
        scaling = scaling_at(panel + weight.scales_offset + group * ScaleBytes(kFormat),
                             panel + weight.zeros_offset + group * ZeroBytes(kFormat));
      }
      StoreInputOf<kFormat>(i, codes, scaling, to + i * kPanelColumns);
    }
  }
}

BH_INLINE void Dequantize(const Product& product, int64_t panel, const PackedCell& cell,
                          float* out) {
  switch (product.format) {
    case PanelFormat::kInt4:
      return DequantizeCell<PanelFormat::kInt4>(*product.quantized, panel, cell, out);
    case PanelFormat::kFp8:
      return DequantizeCell<PanelFormat::kFp8>(*product.quantized, panel, cell, out);
    case PanelFormat::kFp4:
      return DequantizeCell<PanelFormat::kFp4>(*product.quantized, panel, cell, out);
    default:
      return DequantizeCell<PanelFormat::kInt8>(*product.quantized, panel, cell, out);
  }
}

// Sums of rows in place and both vectors of a panel go on over input `kInput` of a word.
template <PanelFormat kFormat, int kInput, int kRows>
BH_INLINE void AddInput(const I32x16 (&codes)[2], const CellScaling& scaling, const float* x,
                        int64_t x_stride, Sums<kRows, 2>& sums) {
  const F32x16 weight[2] = {InputOf<kFormat, kInput>(codes, scaling, 0),
                            InputOf<kFormat, kInput>(codes, scaling, 1)};
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const F32x16 input = Set1(x[r * x_stride + kInput]);
    sums[r][0] = Fma(input, weight[0], sums[r][0]);
    sums[r][1] = Fma(input, weight[1], sums[r][1]);
  }
}

// A slice of a panel without an index, for rows in place; `cells` are those of the slice. Numbers
// stay in registers, where widening them and the chain of sums, which both take their time,
// overlap.
template <PanelFormat kFormat, int kRows>
void RunCells(const QuantizedPanels& weight, int64_t panel_index, const PackedCell* cells,
              int64_t num_cells, const Tile& tile) {
  constexpr int kWordBytes = QuantizedWordBytes(kFormat);
  const char* panel = weight.panels + panel_index * weight.panel_bytes;
  const float* x = tile.x;
  Sums<kRows, 2> sums;
  StartSums<kRows, 0, 2>(tile, sums);
  for (const PackedCell* cell = cells; cell < cells + num_cells; ++cell) {
    const char* at = panel + cell->offset;
    const char* scales = at + int64_t{cell->words} * kWordBytes;
    const CellScaling scaling = LoadScaling<kFormat>(scales, scales + ScaleBytes(kFormat),
                                                     weight.bf16_scales, FactorsOf(weight, panel));
    int left = cell->count;
    for (; left > 0; left -= 4, at += kWordBytes) {
      const I32x16 codes[2] = {LoadCodes<kFormat>(at, 0), LoadCodes<kFormat>(at, 1)};
      for (int line = 0; line < kWordBytes; line += 64) Prefetch(at + kTilePrefetchBytes + line);
      AddInput<kFormat, 0, kRows>(codes, scaling, x, tile.x_stride, sums);
      if (left > 1) AddInput<kFormat, 1, kRows>(codes, scaling, x, tile.x_stride, sums);
      if (left > 2) AddInput<kFormat, 2, kRows>(codes, scaling, x, tile.x_stride, sums);
      if (left > 3) AddInput<kFormat, 3, kRows>(codes, scaling, x, tile.x_stride, sums);
      x += left < 4 ? left : 4;
    }
  }
  JoinSums<kRows, 0, 2>(tile, sums);
  StoreSums<kRows, 0, 2>(tile, sums);
}

// What the registers of every instruction set hold beside two vectors of weights.
inline constexpr int kRowsOfCells = 2;
using RunCellsFunction = void (*)(const QuantizedPanels& weight, int64_t panel,
                                  const PackedCell* cells, int64_t num_cells, const Tile& tile);

template <int kRows>
BH_INLINE RunCellsFunction RunCellsOf(PanelFormat format) {
  if (format == PanelFormat::kInt4) return &RunCells<PanelFormat::kInt4, kRows>;
  if (format == PanelFormat::kFp4) return &RunCells<PanelFormat::kFp4, kRows>;
  if (format == PanelFormat::kFp8) return &RunCells<PanelFormat::kFp8, kRows>;
  return &RunCells<PanelFormat::kInt8, kRows>;
}

// `rows` in [1, kRowsOfCells].
BH_INLINE RunCellsFunction RunCellsFor(PanelFormat format, int64_t rows) {
  return rows == 1 ? RunCellsOf<1>(format) : RunCellsOf<2>(format);
}

}  // namespace bulkhead::BH_ISA
