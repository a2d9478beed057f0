// The vector types and functions of the CPU kernels, 16 lanes of f32: here one zmm register.
// simd/avx2 and simd/plain define the same names with the same bits; CMake chooses by include
// directory. A kernel source may include only this header, <stdint.h> and headers of plain structs:
// any other inline function would be compiled for one CPU and linked into code for all.
#pragma once

#define BH_ISA avx512
#define BH_INLINE [[gnu::always_inline]] inline

#include "kernels/simd/avx512.h"

namespace bulkhead::BH_ISA {

// In each lane, exactly: acc + the four products of unsigned bytes of `a`, less kDotBytesZero, with
// signed bytes of `b`, none of them -128.
inline constexpr int kDotBytesZero = 0;
BH_INLINE I32x16 DotBytes(I32x16 acc, I32x16 a, I32x16 b) {
  const __m512i low = _mm512_set1_epi32(0x00FF00FF);
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a.v, low),
                                         _mm512_srai_epi16(_mm512_slli_epi16(b.v, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a.v, 8), _mm512_srai_epi16(b.v, 8));
  return {_mm512_add_epi32(acc.v, _mm512_add_epi32(even, odd))};
}
// The same for small bytes of `a`, with nothing subtracted. Short: a lane of `acc` is two 16-bit
// sums, whose total WidenNibbleSums gives.
inline constexpr bool kNibbleSumsAreShort = true;
BH_INLINE I32x16 DotNibbles(I32x16 acc, I32x16 a, I32x16 b) {
  return {_mm512_add_epi16(acc.v, _mm512_maddubs_epi16(a.v, b.v))};
}
BH_INLINE I32x16 WidenNibbleSums(I32x16 acc) {
  return {_mm512_madd_epi16(acc.v, _mm512_set1_epi16(1))};
}

// Rows and vectors of 16 columns of such sums that fit the registers.
inline constexpr int kInt8TileRows = 6;
inline constexpr int kInt8TileVectors = 2;

// Nothing computed from or into `a` moves past this.
BH_INLINE void Pin(F32x16& a) { asm volatile("" : "+v"(a.v)); }
BH_INLINE void Pin(I32x16& a) { asm volatile("" : "+v"(a.v)); }

}  // namespace bulkhead::BH_ISA

#include "kernels/simd/bf16_pairs.h"
