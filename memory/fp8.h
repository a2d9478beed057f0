// E4M3 (fp8) values as defined by OCP: a sign, 4 bits of exponent, 3 of fraction; the largest is
// 448, there are no infinities, and 0x7f and 0xff are NaN. Plain C++: kernel sources include this,
// `static` because they are compiled for their own instruction set.
#pragma once

#include <stdint.h>

namespace bulkhead {

inline constexpr uint8_t kE4m3Nan = 0x7F;

[[maybe_unused]] static inline float F32OfE4m3(uint8_t code) {
  uint32_t bits = (uint32_t{code} & 0x80) << 24 | (uint32_t{code} & 0x7F) << 20;
  if ((code & 0x7F) == 0x7F) bits |= 0x7FC00000;
  float small;
  __builtin_memcpy(&small, &bits, sizeof(small));
  return small * 0x1p120f;  // exact
}

// The code of x / scale, to nearest even: kE4m3Nan if x is not finite, else at most 448.
[[maybe_unused]] static inline uint8_t E4m3OfF32(float x, float scale) {
  if (!__builtin_isfinite(x)) return kE4m3Nan;
  const float quotient = x / scale;
  uint32_t bits;
  __builtin_memcpy(&bits, &quotient, sizeof(bits));
  const uint32_t sign = bits >> 24 & 0x80;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x43E00000) return static_cast<uint8_t>(sign | 0x7E);  // 448 and above
  if (magnitude < 0x3C800000) {  // below 2^-6: adding 2^14 aligns the units to 2^-9 and rounds
    const float aligned = __builtin_fabsf(quotient) + 0x1p14f;
    __builtin_memcpy(&bits, &aligned, sizeof(bits));
    return static_cast<uint8_t>(sign | (bits - 0x46800000));
  }
  const uint32_t rounded = magnitude - (120u << 23) + 0x7FFFF + (magnitude >> 20 & 1);
  return static_cast<uint8_t>(sign | rounded >> 20);
}

}  // namespace bulkhead
