// Codes that are small floating-point numbers, as bf16.
#pragma once

#include "intrinsics.h"

namespace bulkhead::cuda {

// The numbers of two bytes of E4M3, from `first` on, as bf16: their bits are those of bf16 times
// 2^-120, but for 0x7f and 0xff, which become 480 and, with all bits of the exponent set, NaN.
BH_DEVICE uint32_t E4m3PairAt(uint32_t codes, int first) {
  const uint32_t pair = __byte_perm(codes, 0, 0x4140U + 0x0101U * static_cast<uint32_t>(first));
  const uint32_t magnitudes = pair & 0x007F007FU;
  const uint32_t small = (pair & 0x00800080U) << 8 | magnitudes << 4;
  const uint32_t nan = (magnitudes + 0x00010001U) & 0x00800080U;
  const uint32_t numbers = Bf16Pair(__uint_as_float(small << 16) * 0x1p120F,
                                    __uint_as_float(small & 0xFFFF0000U) * 0x1p120F);
  return numbers | ((nan << 7) - (nan << 3));
}

// The numbers of two codes of E2M1, in the low bits of each half of a word, as bf16: their bits are
// those of bf16 times 2^-126.
BH_DEVICE uint32_t E2m1Pair(uint32_t codes) {
  const uint32_t small = (codes & 0x00080008U) << 12 | (codes & 0x00070007U) << 6;
  return Bf16Pair(__uint_as_float(small << 16) * 0x1p126F,
                  __uint_as_float(small & 0xFFFF0000U) * 0x1p126F);
}

}  // namespace bulkhead::cuda
