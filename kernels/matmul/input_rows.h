// Rows of x in the layouts of the float products: packed in tiles; in bf16 rounded, in pairs.
#pragma once

#include "kernels/matmul/op.h"
#include "kernels/simd/for_vectors.h"
#include "kernels/simd/transpose_four.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

BH_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Up to 32 inputs from `x` on, of which `count` exist, as pairs.
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

inline constexpr int64_t kPairsAhead = 128;  // inputs between packed and prefetched ones

// The pairs of `count` inputs of each row, [words][rows], if a pair is one word.
inline void PackPairs(const float* const* from, int64_t rows, int64_t count, float* to) {
  const int64_t words = (count + 1) / 2;
  for (int64_t word = 0; word < words; word += kLanes, to += kLanes * rows) {
    I32x16 pairs[kLanes];
    for (int64_t r = rows; r < kLanes; ++r) pairs[r] = I32x16{};
    for (int64_t r = 0; r < rows; ++r) {
      PrefetchNumbers(from[r] + 2 * word + kPairsAhead, 2 * kLanes);
      alignas(64) float rounded[2 * kLanes];
      RoundPairs(from[r] + 2 * word, count - 2 * word, rounded);
      pairs[r] = BitsOf(Load(rounded));
    }
    Transpose(pairs);
    // Lanes after the last row write words that are overwritten later.
    const bool is_last = word + kLanes >= words;
    const auto lanes = static_cast<int>(is_last ? rows : kLanes);
    for (int64_t k = 0; k < Smaller(kLanes, words - word); ++k) {
      StoreN(to + k * rows, FromBits(pairs[k]), lanes);
    }
  }
}

// Words of `count` inputs of a row in the kernels' layout.
BH_INLINE int64_t XWords(const Product& product, int64_t count) {
  return product.in_bf16 ? (count + 1) / 2 * kWordsPerPair : count;
}

// First word of a slice in a row: each slice begins with a whole pair.
BH_INLINE int64_t XBegin(const Product& product, int slice) {
  const int64_t begin = product.k_borders[slice];
  return product.in_bf16 ? (begin / 2 + slice) * kWordsPerPair : begin;
}

// Row `row` of x, from input `k` on.
BH_INLINE const float* InputsOf(const Product& product, int64_t row, int64_t k) {
  return product.x + (product.x_rows == nullptr ? row : product.x_rows[row]) * product.x_stride + k;
}

// to [XWords(count)][rows] = the transpose of inputs [begin, begin + count) of rows [first, first +
// rows) of x, at most kTileRows.
inline void PackRows(const Product& product, int64_t first, int64_t rows, int64_t begin,
                     int64_t count, float* to) {
  for (; count > kBlockInputs; begin += kBlockInputs, count -= kBlockInputs) {
    PackRows(product, first, rows, begin, kBlockInputs, to);
    to += XWords(product, kBlockInputs) * rows;
  }
  alignas(64) float rounded[kTileRows][kBlockInputs];
  const float* from[kTileRows];
  for (int64_t r = 0; r < rows; ++r) from[r] = InputsOf(product, first + r, begin);
  if (kWordsPerPair == 1 && product.in_bf16) return PackPairs(from, rows, count, to);
  for (int64_t r = 0; r < rows && product.in_bf16; ++r) {
    RoundInputs(from[r], count, rounded[r]);
    from[r] = rounded[r];
  }
  const int64_t words = XWords(product, count);
  const int64_t whole_rows = rows / 4 * 4;
  const int64_t whole_words = words / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += 4) {
    for (int64_t k = 0; k < whole_words; k += 4) {
      TransposeFour(from + r, k, to + k * rows + r, rows);
    }
    for (int64_t k = whole_words; k < words; ++k) {
      for (int i = 0; i < 4; ++i) to[k * rows + r + i] = from[r + i][k];
    }
  }
  for (int64_t r = whole_rows; r < rows; ++r) {
    for (int64_t k = 0; k < words; ++k) to[k * rows + r] = from[r][k];
  }
}

}  // namespace bulkhead::BH_ISA
