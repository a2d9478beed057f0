// Inputs of products in bf16 as kernels take them: rounded, in pairs.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

BH_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The 32 inputs from `x` on, of which `count` are there, as pairs.
BH_INLINE void RoundPairs(const float* x, int64_t count, float* words) {
  const auto n = static_cast<int>(Smaller(count, 2 * kLanes));
  if (n == 2 * kLanes) return StorePairs(words, Load(x), Load(x + kLanes));
  StorePairs(words, LoadN(x, n < kLanes ? n : kLanes),
             n > kLanes ? LoadN(x + kLanes, n - kLanes) : Zero());
}

// words = `count` inputs rounded to bf16, in pairs.
inline void RoundInputs(const float* x, int64_t count, float* words) {
  constexpr int kStepWords = kLanes * kWordsPerPair;
  for (int64_t k = 0; k < count; k += 2 * kLanes, words += kStepWords) {
    alignas(64) float rounded[kStepWords];
    RoundPairs(x + k, count - k, rounded);
    const int64_t pairs = Smaller(kLanes, (count - k + 1) / 2);
    __builtin_memcpy(words, rounded, pairs * kWordsPerPair * sizeof(float));
  }
}

// The pairs of `count` inputs of each row, [words][rows], where a pair is one word.
inline void PackPairs(const float* const* from, int64_t rows, int64_t count, float* to) {
  const int64_t words = (count + 1) / 2;
  for (int64_t word = 0; word < words; word += kLanes, to += kLanes * rows) {
    I32x16 pairs[kLanes] = {};
    for (int64_t r = 0; r < rows; ++r) {
      alignas(64) float rounded[2 * kLanes];
      RoundPairs(from[r] + 2 * word, count - 2 * word, rounded);
      pairs[r] = BitsOf(Load(rounded));
    }
    Transpose(pairs);
    // Lanes behind the last row are those of the words behind, which are written later, or none:
    // pairs leave half of their room free.
    const bool is_last = word + kLanes >= words;
    const auto lanes = static_cast<int>(is_last ? rows : kLanes);
    for (int64_t k = 0; k < Smaller(kLanes, words - word); ++k) {
      StoreN(to + k * rows, FromBits(pairs[k]), lanes);
    }
  }
}

}  // namespace bulkhead::BH_ISA
