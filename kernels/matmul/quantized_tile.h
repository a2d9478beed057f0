// Cells of a quantised panel as f32. Compiled per instruction set; included by simd.cc alone.
#pragma once

#include "kernels/packing/quantized_layout.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// The largest cell: kIndexedCellInputs, and the largest group.
inline constexpr int kMaxCellInputs = 128;

inline constexpr int64_t kTilePrefetchBytes = 2048;

struct CellScaling {
  F32x16 scale[2];
  F32x16 zero[2];
};

template <bool kIsInt4>
BH_INLINE CellScaling LoadScaling(const char* scales, const char* zeros) {
  const uint16_t* f16 = reinterpret_cast<const uint16_t*>(scales);
  CellScaling scaling{{LoadF16(f16), LoadF16(f16 + kLanes)}, {Set1(128.0f), Set1(128.0f)}};
  if constexpr (kIsInt4) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(zeros);
    scaling.zero[0] = ToF32(LoadBytes(bytes));
    scaling.zero[1] = ToF32(LoadBytes(bytes + kLanes));
  }
  return scaling;
}

// Input `kInput` of a word, both vectors of columns.
template <bool kIsInt4, int kInput>
BH_INLINE void StoreInput(const char* word, const CellScaling& scaling, float* out) {
  for (int v = 0; v < 2; ++v) {
    I32x16 bits = LoadI(reinterpret_cast<const int32_t*>(word + (kIsInt4 ? 0 : 64 * v)));
    bits = ShiftRight<8 * kInput>(bits);
    if constexpr (kIsInt4) {
      if (v == 1) bits = ShiftRight<4>(bits);
      bits = And(bits, SetI1(0xF));
    } else {
      bits = And(bits, SetI1(0xFF));
    }
    // Exact: at most 9 bits times 11.
    Store(out + v * kLanes, Mul(Sub(ToF32(bits), scaling.zero[v]), scaling.scale[v]));
  }
}

// Input `kInput` of a word that is loaded: int8, both vectors; int4, one with both in it.
template <bool kIsInt4, int kInput>
BH_INLINE void StoreLoaded(const I32x16* words, const CellScaling& scaling, float* out) {
  for (int v = 0; v < 2; ++v) {
    constexpr int kShift = 8 * kInput;
    I32x16 bits = kIsInt4 && v == 1 ? ShiftRight<kShift + (kIsInt4 ? 4 : 0)>(words[0])
                                    : ShiftRight<kShift>(words[kIsInt4 ? 0 : v]);
    bits = And(bits, SetI1(kIsInt4 ? 0xF : 0xFF));
    Store(out + kInput * kPanelColumns + v * kLanes,
          Mul(Sub(ToF32(bits), scaling.zero[v]), scaling.scale[v]));
  }
}

// All four inputs of a word of a cell.
template <bool kIsInt4>
BH_INLINE void StoreWord(const char* word, const CellScaling& scaling, float* out) {
  const int32_t* from = reinterpret_cast<const int32_t*>(word);
  I32x16 words[2];
  words[0] = LoadI(from);
  words[1] = kIsInt4 ? words[0] : LoadI(from + kLanes);
  StoreLoaded<kIsInt4, 0>(words, scaling, out);
  StoreLoaded<kIsInt4, 1>(words, scaling, out);
  StoreLoaded<kIsInt4, 2>(words, scaling, out);
  StoreLoaded<kIsInt4, 3>(words, scaling, out);
}

template <bool kIsInt4>
BH_INLINE void StoreInputOf(int input, const char* word, const CellScaling& scaling, float* out) {
  switch (input) {
    case 0:
      return StoreInput<kIsInt4, 0>(word, scaling, out);
    case 1:
      return StoreInput<kIsInt4, 1>(word, scaling, out);
    case 2:
      return StoreInput<kIsInt4, 2>(word, scaling, out);
    default:
      return StoreInput<kIsInt4, 3>(word, scaling, out);
  }
}

// out [cell.count][32]
template <bool kIsInt4>
void DequantizeCell(const QuantizedPanels& weight, int64_t panel_index, const PackedCell& cell,
                    float* out) {
  constexpr int kWordBytes = QuantizedWordBytes(kIsInt4);
  const char* panel = weight.panels + panel_index * weight.panel_bytes;
  const char* codes = panel + cell.offset;
  const int64_t code_bytes = int64_t{cell.words} * kWordBytes;
  const bool indexed = weight.group_of_input != nullptr;
  CellScaling scaling{};
  if (!indexed) scaling = LoadScaling<kIsInt4>(codes + code_bytes, codes + code_bytes + 64);
  for (int word = 0; word < cell.words; ++word) {
    const int first = 4 * word;
    const int count = cell.count - first < 4 ? cell.count - first : 4;
    const char* at = codes + word * kWordBytes;
    for (int line = 0; line < kWordBytes; line += 64) Prefetch(at + kTilePrefetchBytes + line);
    if (!indexed && count == 4) {
      StoreWord<kIsInt4>(at, scaling, out + first * kPanelColumns);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      if (indexed) {
        const int64_t group = weight.group_of_input[cell.begin + first + i];
        scaling = LoadScaling<kIsInt4>(panel + weight.scales_offset + group * 64,
                                       panel + weight.zeros_offset + group * 32);
      }
      StoreInputOf<kIsInt4>(i, at, scaling, out + (first + i) * kPanelColumns);
    }
  }
}

}  // namespace bulkhead::BH_ISA
