// The vector vocabulary where the CPU has vdpbf16ps, for float products; see simd/avx512.
#pragma once

#define BH_ISA avx512bf16
#define BH_INLINE [[gnu::always_inline]] inline

#include "kernels/simd/avx512.h"

namespace bulkhead::BH_ISA {

// ---- products in bf16, as kernels/simd/bf16_pairs.h has them: here a pair of inputs is one word,
// its even one in the low half
inline constexpr int kWordsPerPair = 1;

// vdpbf16ps takes denormals as 0 in every mode.
template <int kRows, int kVectors, typename Body>
BH_INLINE void InFlushMode(F32x16 (&)[kRows][kVectors], const Body& body) {
  body();
}

// g++ 12 spills around its own intrinsic.
BH_INLINE F32x16 DotPairs(F32x16 acc, __m512 inputs, __m512i columns) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(inputs), "v"(columns));
  return acc;
}

template <bool kBoth, int kRows, int kFirst, int kVectors>
BH_INLINE void AddPair(const float* x, int64_t row_stride, int64_t, const char* w,
                       F32x16 (&sums)[kRows][kVectors]) {
  constexpr __mmask32 kHigh = 0xAAAAAAAA;  // of each word
  const __m512i even = _mm512_loadu_si512(w);
  const __m512i odd = kBoth ? _mm512_loadu_si512(w + 64) : _mm512_setzero_si512();
  const __m512i low = _mm512_mask_blend_epi16(kHigh, even, _mm512_slli_epi32(odd, 16));
  const __m512i high = _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(even, 16), odd);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512 pair = _mm512_set1_ps(x[r * row_stride]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = DotPairs(sums[r][v], pair, kFirst + v == 0 ? low : high);
    }
  }
}

}  // namespace bulkhead::BH_ISA
