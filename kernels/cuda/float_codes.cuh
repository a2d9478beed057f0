// Codes that are small floating-point numbers: as bf16, and of numbers.
#pragma once

#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr uint32_t kBf16OfMinusZero = 0x80008000U;

// Two bytes of E4M3, from `first` on, as bf16: the shifted bits are bf16 values times 2^-120. The
// addition moves the sign from bit 11 to bit 15. NaN codes become 480: such weights are refused at
// load.
BH_DEVICE uint32_t E4m3WeightPairAt(uint32_t codes, int first) {
  constexpr uint32_t k2To120 = 0x7B807B80U;
  const uint32_t pair = __byte_perm(codes, 0, 0x4140U + 0x0101U * static_cast<uint32_t>(first));
  const uint32_t small = (pair * 16 + 0x78007800U) & 0x87F087F0U;
  return FmaBf16Pairs(small, k2To120, kBf16OfMinusZero);
}

// The same, with NaN for NaN codes: a product that overflows only at 480 adds NaN there, and
// elsewhere a zero of the number's sign.
BH_DEVICE uint32_t E4m3PairAt(uint32_t codes, int first) {
  constexpr uint32_t kOverflows = 0x7B107B10U;  // 1.125 times 2^119
  const uint32_t number = E4m3WeightPairAt(codes, first);
  return FmaBf16Pairs(FmaBf16Pairs(number, kOverflows, kBf16OfMinusZero), 0, number);
}

// Two E2M1 codes, in the low bits of each half of a word, times 2^-126 times `scales`, as bf16: the
// shifted bits are bf16 values times 2^-126.
BH_DEVICE uint32_t ScaledE2m1Pair(uint32_t codes, uint32_t scales) {
  const uint32_t small = AndXor(codes << 12, 0x80008000U, codes << 6 & 0x01C001C0U);
  return FmaBf16Pairs(small, scales, kBf16OfMinusZero);
}

// The same without scales.
BH_DEVICE uint32_t E2m1Pair(uint32_t codes) {
  constexpr uint32_t k2To126 = 0x7E807E80U;
  return ScaledE2m1Pair(codes, k2To126);
}

// The scales argument of ScaledE2m1Pair from two bytes of nvfp4 scales, from `first` on.
BH_DEVICE void Nvfp4Scales(uint32_t scales, int first, uint32_t (&pairs)[2]) {
  constexpr uint32_t k2To118 = 0x7A807A80U;
  const uint32_t both = FmaBf16Pairs(E4m3WeightPairAt(scales, first), k2To118, kBf16OfMinusZero);
  pairs[0] = __byte_perm(both, 0, 0x1010U);
  pairs[1] = __byte_perm(both, 0, 0x3232U);
}

// The code of x / scale (memory/fp8.h). In a sum with 2^(e + 20) three bits of the fraction of a
// number with exponent e, -6 or more, are left.
BH_DEVICE unsigned char E4m3OfF32(float x, float scale) {
  if (!(fabsf(x) <= 3.4028235e38F)) return 0x7F;
  const float quotient = x / scale;
  const float magnitude = fminf(fabsf(quotient), 448.0F);
  const uint32_t exponent = __float_as_uint(fmaxf(magnitude, 0x1p-6F)) & 0x7F800000U;
  const float unit = __uint_as_float(exponent + (20U << 23));
  const float rounded = (magnitude + unit) - unit;
  const uint32_t sign = __float_as_uint(quotient) >> 24 & 0x80U;
  return static_cast<unsigned char>(__float_as_uint(rounded * 0x1p-120F) >> 20 | sign);
}

}  // namespace bulkhead::cuda
