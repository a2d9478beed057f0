// bf16 as f32 and back, in integer code: rounding is to nearest even, a NaN stays a NaN and becomes
// quiet (bf16 to f32 changes nothing). Plain: kernel sources include this, `static` because they
// are compiled for their own instruction set.
#pragma once

#include <stdint.h>

namespace bulkhead {

[[maybe_unused]] static inline uint32_t BitsOfF32(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

[[maybe_unused]] static inline float F32OfBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

[[maybe_unused]] static inline float F32OfBf16(uint16_t x) { return F32OfBits(uint32_t{x} << 16); }

[[maybe_unused]] static inline uint16_t Bf16OfF32(float x) {
  const uint32_t bits = BitsOfF32(x);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  return static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
}

}  // namespace bulkhead
