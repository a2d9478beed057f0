// f16 as f32 and back, besides bf16: the vector conversions give the same bits. Rounding is to
// nearest even, f16 overflows to infinity, a NaN stays a NaN and becomes quiet. `static`: kernel
// sources compile these for their own instruction set.
#pragma once

#include <stdint.h>

#include "memory/bf16.h"

namespace bulkhead {

[[maybe_unused]] static inline float F32OfF16(uint16_t x) {
  const uint32_t sign = uint32_t{x & 0x8000u} << 16;
  const uint32_t exponent = (x >> 10) & 0x1F;
  const uint32_t fraction = x & 0x3FF;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return F32OfBits(BitsOfF32(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = fraction == 0 ? 0 : 0x400000;
    return F32OfBits(sign | 0x7F800000 | quiet | (fraction << 13));
  }
  return F32OfBits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

[[maybe_unused]] static inline uint16_t F16OfF32(float x) {
  const uint32_t bits = BitsOfF32(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    return static_cast<uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
  }
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and above
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 aligns the units to 2^-24 and rounds
    const float aligned = F32OfBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOfF32(aligned) - 0x3F000000));
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace bulkhead
