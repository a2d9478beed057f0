// Products in bf16 (ActivationDType::kBf16) on CPUs without vdpbf16ps: the same bits by fused
// multiply-adds. Included by every simd.h except avx512bf16's, which has its own version.
#pragma once

#include <xmmintrin.h>

namespace bulkhead::BH_ISA {

// A pair of inputs is two words: f32 values that are exact in bf16.
inline constexpr int kWordsPerPair = 2;

// body(), which only adds to `sums`, with denormal inputs and results taken as 0.
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

// Storage of vectors of pairs. Number<0>(v) is vector v of the even numbers, Number<1>(v) of the
// odd ones. CachePairs: even numbers from at[v] on, odd ones `odd` elements later.
template <int kVectors>
struct CachePairs {
  const uint16_t* at[kVectors];
  int64_t odd;
  template <int kWord>
  BH_INLINE F32x16 Number(int v) const {
    return LoadBf16(at[v] + kWord * odd);
  }
};
// Interleaved pairs from at[v] on.
template <int kVectors>
struct InterleavedPairs {
  const char* at[kVectors];
  template <int kWord>
  BH_INLINE F32x16 Number(int v) const {
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(at[v]);
    return kWord == 0 ? LoadBf16Low(words) : LoadBf16High(words);
  }
};
// Only number kKept of each pair: the other counts as 0.
template <typename Pairs, int kKept>
struct HalfPairs {
  Pairs pairs;
  template <int kWord>
  BH_INLINE F32x16 Number(int v) const {
    if constexpr (kWord != kKept) return Zero();
    return pairs.template Number<kWord>(v);
  }
};

template <int kWord, int kRows, int kVectors, typename Pairs>
BH_INLINE void AddNumbers(const float* x, int64_t row_stride, const Pairs& pairs,
                          F32x16 (&sums)[kRows][kVectors]) {
  F32x16 column[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) column[v] = pairs.template Number<kWord>(v);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F32x16 input = Set1(x[r * row_stride]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Fma(input, column[v], sums[r][v]);
  }
}

// Adds to each sum the products of a row's pair with `pairs`: fma(even, even, fma(odd, odd, sum)).
// The words of a pair are `word_stride` apart, rows `row_stride`.
template <int kRows, int kVectors, typename Pairs>
BH_INLINE void AddPair(const float* x, int64_t row_stride, int64_t word_stride, const Pairs& pairs,
                       F32x16 (&sums)[kRows][kVectors]) {
  AddNumbers<1>(x + word_stride, row_stride, pairs, sums);
  AddNumbers<0>(x, row_stride, pairs, sums);
}

// A denormal becomes 0 of the same sign.
BH_INLINE F32x16 Flushed(F32x16 a) {
  const F32x16 magnitude = FromBits(And(BitsOf(a), SetI1(0x7FFFFFFF)));
  const F32x16 zero = FromBits(And(BitsOf(a), SetI1(static_cast<int32_t>(0x80000000))));
  return Select(Less(magnitude, Set1(0x1p-126f)), zero, a);
}

// Words of the 16 pairs of 32 numbers, `a` first, rounded to bf16, denormals as 0.
BH_INLINE void StorePairs(float* words, F32x16 a, F32x16 b) {
  uint16_t rounded[2 * kLanes];
  StoreBf16(rounded, Flushed(a));
  StoreBf16(rounded + kLanes, Flushed(b));
  Store(words, LoadBf16(rounded));
  Store(words + kLanes, LoadBf16(rounded + kLanes));
}

}  // namespace bulkhead::BH_ISA
