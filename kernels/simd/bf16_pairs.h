// Products in bf16 (ActivationDType::kBf16) where the CPU has no vdpbf16ps: the same bits by fused
// multiply-adds. Each simd.h includes this but that of avx512bf16, which has its own.
#pragma once

#include <xmmintrin.h>

namespace bulkhead::BH_ISA {

// A pair of inputs is two words: f32 that bf16 holds.
inline constexpr int kWordsPerPair = 2;

// body(), which adds to `sums` alone, with denormal inputs and results taken as 0.
template <int kRows, int kVectors, typename Body>
BH_INLINE void InFlushMode(F32x16 (&sums)[kRows][kVectors], const Body& body) {
  const auto pin = [&] {
    for (auto& row : sums) {
      for (F32x16& sum : row) Pin(sum);
    }
  };
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  pin();
  body();
  pin();
  _mm_setcsr(before);
}

// Adds to each sum the products of a row's pair with columns of the panel at the two k's from `w`
// on: fma(even, even, fma(odd, odd, sum)). Unless `kBoth` the second k is none, and counts as 0.
// The words of a pair are `word_stride` apart, rows `row_stride`.
template <bool kBoth, int kRows, int kFirst, int kVectors>
BH_INLINE void AddPair(const float* x, int64_t row_stride, int64_t word_stride, const char* w,
                       F32x16 (&sums)[kRows][kVectors]) {
#pragma GCC unroll 2
  for (int word = 1; word >= 0; --word) {
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(w) + word * kLanes;
    F32x16 column[2] = {Zero(), Zero()};
    if (kBoth || word == 0) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        column[v] = kFirst + v == 0 ? LoadBf16Low(words) : LoadBf16High(words);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 input = Set1(x[word * word_stride + r * row_stride]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Fma(input, column[v], sums[r][v]);
    }
  }
}

}  // namespace bulkhead::BH_ISA
