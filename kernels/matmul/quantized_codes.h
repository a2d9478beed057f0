// The words, scales and zeros of a cell of a quantised panel. Compiled per instruction set.
#pragma once

#include "kernels/packing/quantized_layout.h"
#include "kernels/simd/e4m3.h"
#include "memory/fp4.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// The zero of formats in which all zeros are equal.
template <PanelFormat kFormat>
inline constexpr int kZeroOf = kFormat == PanelFormat::kFp4 ? kFp4Zero : 128;

// A word: four inputs of one column vector, a byte each; for fp4 steps, for fp8 E4m3Pairs.
template <PanelFormat kFormat>
BH_INLINE auto LoadCodes(const char* word, int vector) {
  const int32_t* from = reinterpret_cast<const int32_t*>(word);
  if constexpr (kFormat == PanelFormat::kFp8) {
    return LoadE4m3Pairs(from + vector * kLanes);
  } else {
    if constexpr (QuantizedWordBytes(kFormat) == 128) return LoadI(from + vector * kLanes);
    const I32x16 both = LoadI(from);
    const I32x16 codes = And(vector == 0 ? both : ShiftRight<4>(both), SetI1(0x0F0F0F0F));
    return kFormat == PanelFormat::kFp4 ? LookUpBytes(kFp4Steps, codes) : codes;
  }
}
template <PanelFormat kFormat>
using Codes = decltype(LoadCodes<kFormat>(nullptr, 0));

struct CellScaling {
  F32x16 scale[2];
  F32x16 zero[2];
};

// `factors`: FactorsOf the panel.
template <PanelFormat kFormat>
BH_INLINE CellScaling LoadScaling(const char* scales, const char* zeros, bool bf16_scales,
                                  const float* factors) {
  const F32x16 zero = Set1(static_cast<float>(kZeroOf<kFormat>));
  CellScaling scaling{{}, {zero, zero}};
  for (int v = 0; v < 2; ++v) {
    if constexpr (kFormat == PanelFormat::kFp4) {
      const uint8_t* codes = reinterpret_cast<const uint8_t*>(scales) + v * kLanes;
      // Steps are halves.
      if (factors != nullptr) {
        const F32x16 number = Mul(LoadSmallE4m3(codes), Set1(0x1p7f));
        scaling.scale[v] = Mul(number, Load(factors + v * kLanes));
      } else {
        // e8m0: the exponent's bits; 2^-127 is subnormal.
        const I32x16 bits = MaxI(ShiftLeft<23>(LoadBytes(codes)), SetI1(0x00400000));
        scaling.scale[v] = Mul(FromBits(bits), Set1(0.5f));
      }
    } else if constexpr (kFormat == PanelFormat::kFp8) {
      // SmallE4m3Of's factor, which is exact: scales are below kEndOfFp8Scales.
      const F32x16 scale = Load(reinterpret_cast<const float*>(scales) + v * kLanes);
      scaling.scale[v] = Mul(scale, Set1(0x1p104f));
    } else {
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(scales) + v * kLanes;
      scaling.scale[v] = bf16_scales ? LoadBf16(halves) : LoadF16(halves);
    }
    if constexpr (kFormat == PanelFormat::kInt4) {
      scaling.zero[v] = ToF32(LoadBytes(reinterpret_cast<const uint8_t*>(zeros) + v * kLanes));
    }
  }
  return scaling;
}

}  // namespace bulkhead::BH_ISA
