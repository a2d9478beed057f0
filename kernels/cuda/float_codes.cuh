// Codes that are small floating-point numbers, as bf16.
#pragma once

#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr uint32_t kBf16OfMinusZero = 0x80008000U;

// The numbers of two bytes of E4M3, from `first` on, as bf16: their bits are those of bf16 times
// 2^-120, but for 0x7f and 0xff, which become 480 and, with all bits of the exponent set, NaN.
BH_DEVICE uint32_t E4m3PairAt(uint32_t codes, int first) {
  constexpr uint32_t k2To120 = 0x7B807B80U;
  const uint32_t pair = __byte_perm(codes, 0, 0x1404U + 0x1010U * static_cast<uint32_t>(first));
  const uint32_t magnitudes = pair >> 4 & 0x07F007F0U;
  const uint32_t small = AndXor(pair, 0x80008000U, magnitudes);
  const uint32_t nan = (magnitudes + 0x00100010U) >> 1 & 0x04000400U;
  return FmaBf16Pairs(small, k2To120, kBf16OfMinusZero) | nan * 31;
}

// The numbers of two codes of E2M1, in the low bits of each half of a word, as bf16: their bits are
// those of bf16 times 2^-126.
BH_DEVICE uint32_t E2m1Pair(uint32_t codes) {
  constexpr uint32_t k2To126 = 0x7E807E80U;
  const uint32_t small = AndXor(codes << 12, 0x80008000U, codes << 6 & 0x01C001C0U);
  return FmaBf16Pairs(small, k2To126, kBf16OfMinusZero);
}

}  // namespace bulkhead::cuda
