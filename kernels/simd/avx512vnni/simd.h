// The vector functions if the CPU has vpdpbusd, for int8 products; see simd/avx512.
#pragma once

#define BH_ISA avx512vnni
#define BH_INLINE [[gnu::always_inline]] inline

#include "kernels/simd/avx512.h"

namespace bulkhead::BH_ISA {

// g++ 12 spills registers around its own intrinsic.
inline constexpr int kDotBytesZero = 0;
BH_INLINE I32x16 DotBytes(I32x16 acc, I32x16 a, I32x16 b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(a.v), "v"(b.v));
  return acc;
}
inline constexpr bool kNibbleSumsAreShort = false;
BH_INLINE I32x16 DotNibbles(I32x16 acc, I32x16 a, I32x16 b) { return DotBytes(acc, a, b); }
BH_INLINE I32x16 WidenNibbleSums(I32x16 acc) { return acc; }

inline constexpr int kInt8TileRows = 12;
inline constexpr int kInt8TileVectors = 2;

BH_INLINE void Pin(I32x16& a) { asm volatile("" : "+v"(a.v)); }

}  // namespace bulkhead::BH_ISA
