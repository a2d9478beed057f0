// The vector functions if the CPU has vdpbf16ps, for float products; see simd/avx512.
#pragma once

#define BH_ISA avx512bf16
#define BH_INLINE [[gnu::always_inline]] inline

#include "kernels/simd/avx512.h"

namespace bulkhead::BH_ISA {

// ---- products in bf16, as in kernels/simd/bf16_pairs.h: here a pair of inputs is one word, with
// the even input in the low half
inline constexpr int kWordsPerPair = 1;

// vdpbf16ps treats denormals as 0 in every mode.
template <int kRows, int kVectors, typename Body>
BH_INLINE void InFlushMode(F32x16 (&)[kRows][kVectors], const Body& body) {
  body();
}

// g++ 12 spills registers around its own intrinsic.
BH_INLINE F32x16 DotPairs(F32x16 acc, __m512 inputs, __m512i columns) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(inputs), "v"(columns));
  return acc;
}

inline constexpr __mmask32 kOddNumbers = 0xAAAAAAAA;  // in each word

template <int kVectors>
struct CachePairs {
  const uint16_t* at[kVectors];
  int64_t odd;
  BH_INLINE __m512i Words(int v) const {
    const __m512i second = _mm512_cvtepu16_epi32(LoadU16(at[v] + odd));
    return _mm512_or_si512(_mm512_cvtepu16_epi32(LoadU16(at[v])), _mm512_slli_epi32(second, 16));
  }
};
template <int kVectors>
struct InterleavedPairs {
  const char* at[kVectors];
  BH_INLINE __m512i Words(int v) const { return _mm512_loadu_si512(at[v]); }
};
template <typename Pairs, int kKept>
struct HalfPairs {
  Pairs pairs;
  BH_INLINE __m512i Words(int v) const {
    return _mm512_maskz_mov_epi16(kKept == 1 ? kOddNumbers : ~kOddNumbers, pairs.Words(v));
  }
};

template <int kRows, int kVectors, typename Pairs>
BH_INLINE void AddPair(const float* x, int64_t row_stride, int64_t, const Pairs& pairs,
                       F32x16 (&sums)[kRows][kVectors]) {
  __m512i column[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) column[v] = pairs.Words(v);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512 pair = _mm512_set1_ps(x[r * row_stride]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = DotPairs(sums[r][v], pair, column[v]);
  }
}

BH_INLINE void StorePairs(float* words, F32x16 a, F32x16 b) {
  __m512i rounded;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded) : "v"(a.v), "v"(b.v));
  _mm512_storeu_si512(words, rounded);
}

}  // namespace bulkhead::BH_ISA
