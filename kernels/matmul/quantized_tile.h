// Cells of a quantised panel as f32. Compiled per instruction set; included by simd.cc alone.
#pragma once

#include "kernels/matmul/quantized_codes.h"

namespace bulkhead::BH_ISA {

// The largest cell: kIndexedCellInputs, and the largest group.
inline constexpr int kMaxCellInputs = 128;

inline constexpr int64_t kTilePrefetchBytes = 2048;

// Input `kInput` of a word, both vectors of columns.
template <PanelFormat kFormat, int kInput>
BH_INLINE void StoreInput(const I32x16 (&codes)[2], const CellScaling& scaling, float* out) {
  for (int v = 0; v < 2; ++v) {
    if constexpr (kFormat == PanelFormat::kFp8) {
      Store(out + v * kLanes, Mul(SmallE4m3Of<kInput>(codes[v]), scaling.scale[v]));
      continue;
    }
    const I32x16 code = And(ShiftRight<8 * kInput>(codes[v]), SetI1(0xFF));
    // Exact, at most 9 bits times 11, but where the scale has a factor.
    Store(out + v * kLanes, Mul(Sub(ToF32(code), scaling.zero[v]), scaling.scale[v]));
  }
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

}  // namespace bulkhead::BH_ISA
