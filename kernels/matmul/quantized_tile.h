// Cells of a quantised panel as f32. Compiled per instruction set; included only by simd.cc files.
#pragma once

#include "kernels/matmul/product_tile.h"
#include "kernels/matmul/quantized_codes.h"

namespace bulkhead::BH_ISA {

// Prefetch distance. fp8 words take more instructions, so fewer of them are in flight.
template <PanelFormat kFormat>
inline constexpr int64_t kTilePrefetchBytes = kFormat == PanelFormat::kFp8 ? 6144 : 2048;

template <PanelFormat kFormat>
BH_INLINE void PrefetchWord(const char* at) {
  for (int line = 0; line < QuantizedWordBytes(kFormat); line += 64) {
    Prefetch(at + kTilePrefetchBytes<kFormat> + line);
  }
}

// Input `kInput` of a word, in column vector `v`.
template <PanelFormat kFormat, int kInput>
BH_INLINE F32x16 InputOf(const Codes<kFormat>& codes, const CellScaling& scaling, int v) {
  if constexpr (kFormat == PanelFormat::kFp8) {
    return Mul(SmallE4m3Of<kInput>(codes), scaling.scale[v]);
  } else {
    const I32x16 code = And(ShiftRight<8 * kInput>(codes), SetI1(0xFF));
    // Exact, at most 9 bits times 11, unless the scale has a factor.
    return Mul(Sub(ToF32(code), scaling.zero[v]), scaling.scale[v]);
  }
}

template <PanelFormat kFormat>
BH_INLINE void StoreInputOf(int input, const Codes<kFormat>& codes, const CellScaling& scaling,
                            int v, float* out) {
  switch (input) {
    case 0:
      return Store(out, InputOf<kFormat, 0>(codes, scaling, v));
    case 1:
      return Store(out, InputOf<kFormat, 1>(codes, scaling, v));
    case 2:
      return Store(out, InputOf<kFormat, 2>(codes, scaling, v));
    default:
      return Store(out, InputOf<kFormat, 3>(codes, scaling, v));
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
    PrefetchWord<kFormat>(at);
    if (!indexed && count == 4) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const Codes<kFormat> codes = LoadCodes<kFormat>(at, v);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          StoreInputOf<kFormat>(i, codes, scaling, v, to + i * kPanelColumns + v * kLanes);
        }
      }
      continue;
    }
    for (int i = 0; i < count; ++i) {
      if (indexed) {
        const int64_t group = weight.group_of_input[cell.begin + first + i];
        scaling = scaling_at(panel + weight.scales_offset + group * ScaleBytes(kFormat),
                             panel + weight.zeros_offset + group * ZeroBytes(kFormat));
      }
      for (int v = 0; v < 2; ++v) {
        StoreInputOf<kFormat>(i, LoadCodes<kFormat>(at, v), scaling, v,
                              to + i * kPanelColumns + v * kLanes);
      }
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

// Continues sums of rows in place and vectors [kBegin, kEnd) over input `kInput` of a word.
template <PanelFormat kFormat, int kInput, int kRows, int kBegin, int kEnd>
BH_INLINE void AddInput(const Codes<kFormat> (&codes)[2], const CellScaling& scaling,
                        const float* x, int64_t x_stride, Sums<kRows, 2>& sums) {
  F32x16 weight[2];
  for (int v = kBegin; v < kEnd; ++v) weight[v] = InputOf<kFormat, kInput>(codes[v], scaling, v);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const F32x16 input = Set1(x[r * x_stride + kInput]);
    for (int v = kBegin; v < kEnd; ++v) sums[r][v] = Fma(input, weight[v], sums[r][v]);
  }
}

// The same over the first `count` inputs of a word, or all four.
template <PanelFormat kFormat, int kRows, int kBegin, int kEnd>
BH_INLINE void AddVectors(const char* word, int count, const CellScaling& scaling, const float* x,
                          int64_t x_stride, Sums<kRows, 2>& sums) {
  Codes<kFormat> codes[2];
  for (int v = kBegin; v < kEnd; ++v) codes[v] = LoadCodes<kFormat>(word, v);
  AddInput<kFormat, 0, kRows, kBegin, kEnd>(codes, scaling, x, x_stride, sums);
  if (count > 1) AddInput<kFormat, 1, kRows, kBegin, kEnd>(codes, scaling, x, x_stride, sums);
  if (count > 2) AddInput<kFormat, 2, kRows, kBegin, kEnd>(codes, scaling, x, x_stride, sums);
  if (count > 3) AddInput<kFormat, 3, kRows, kBegin, kEnd>(codes, scaling, x, x_stride, sums);
}

// The same for both vectors of a panel. With fp8 one after the other: AVX2 lacks registers for both
// vectors' pairs, and for the inputs, which g++ would keep without the empty asm.
template <PanelFormat kFormat, int kRows>
BH_INLINE void AddWord(const char* word, int count, const CellScaling& scaling, const float* x,
                       int64_t x_stride, Sums<kRows, 2>& sums) {
  if constexpr (kFormat == PanelFormat::kFp8) {
    AddVectors<kFormat, kRows, 0, 1>(word, count, scaling, x, x_stride, sums);
    asm volatile("" : "+r"(x));
    AddVectors<kFormat, kRows, 1, 2>(word, count, scaling, x, x_stride, sums);
  } else {
    AddVectors<kFormat, kRows, 0, 2>(word, count, scaling, x, x_stride, sums);
  }
}

// A slice of a panel without an index, for rows in place; `cells` are the slice's. Numbers stay in
// registers, so that widening them overlaps with the chain of sums.
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
      PrefetchWord<kFormat>(at);
      if (kFormat == PanelFormat::kFp8 && left >= 4) {
        AddWord<kFormat, kRows>(at, 4, scaling, x, tile.x_stride, sums);
      } else {
        AddWord<kFormat, kRows>(at, left, scaling, x, tile.x_stride, sums);
      }
      x += left < 4 ? left : 4;
    }
  }
  JoinSums<kRows, 0, 2>(tile, sums);
  StoreSums<kRows, 0, 2>(tile, sums);
}

// Rows that fit every instruction set's registers besides two vectors of weights.
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
