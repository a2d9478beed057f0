// Codes of the cache as 16-bit numbers, whose products are computed as for a 16-bit cache:
//   fp8          bf16, exactly; their scales are applied to scores and sums
//   int8, int4   code * scale + zero in f16, rounded once
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "memory/kv_format.h"

namespace bulkhead::cuda {

// The format in which keys, values, queries and weights are multiplied.
constexpr KvFormat NumbersOf(KvFormat format) {
  if (format == KvFormat::kFP8) return KvFormat::kBF16;
  return IsQuantized(format) ? KvFormat::kF16 : format;
}

struct alignas(8) Words2 {
  uint32_t w[2];
};

// Scales and zeros of eight numbers, two per word.
struct ScalingOfEight {
  uint32_t scale[4];
  uint32_t zero[4];
};

BH_DEVICE void Take(const Words4& pairs, uint32_t (&to)[4]) {
  BH_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = pairs.w[i];
}
// Fills all with one number, or with 0 if it is not seen.
BH_DEVICE void Fill(bool seen, const unsigned char* number, uint32_t (&to)[4]) {
  const uint32_t pair = seen ? *reinterpret_cast<const uint16_t*>(number) * 0x10001U : 0;
  BH_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = pair;
}

// The codes of two adjacent numbers, in the low bytes of a word's halves, as f16: the bits of 1024
// + 16^part code need no arithmetic.
template <int kBits>
BH_DEVICE uint32_t F16OfCodes(uint32_t word, int part) {
  constexpr uint32_t k1024 = 0x64006400U;
  constexpr uint32_t kMinus1024 = 0xE400E400U;
  constexpr uint32_t kOne = 0x3C003C00U;
  if constexpr (kBits == 8) {
    return FmaF16Pairs(word, kOne, kMinus1024);  // the upper bytes hold the bits of 1024
  } else {
    constexpr uint32_t kSixteenth = 0x2C002C00U;
    constexpr uint32_t kMinus64 = 0xD400D400U;
    return part == 0 ? FmaF16Pairs(AndXor(word, 0x000F000FU, k1024), kOne, kMinus1024)
                     : FmaF16Pairs(AndXor(word, 0x00F000F0U, k1024), kSixteenth, kMinus64);
  }
}

// Eight bytes of codes as eight numbers; with 4 bits their low (part 0) or high halves.
template <KvFormat kFormat>
BH_DEVICE Words4 EightNumbers(const Words2& codes, int part, const ScalingOfEight& scaling) {
  Words4 numbers;
  BH_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = codes.w[i / 2];
    if constexpr (kFormat == KvFormat::kFP8) {
      numbers.w[i] = E4m3PairAt(word, i % 2 * 2);
    } else if constexpr (kFormat == KvFormat::kInt8) {
      const uint32_t pair = __byte_perm(word, 0x64646464U, i % 2 == 0 ? 0x4140U : 0x4342U);
      numbers.w[i] = FmaF16Pairs(F16OfCodes<8>(pair, 0), scaling.scale[i], scaling.zero[i]);
    } else {
      const uint32_t pairs = __byte_perm(word, 0, 0x3120U);
      const uint32_t pair = i % 2 == 0 ? pairs : pairs >> 8;
      numbers.w[i] = FmaF16Pairs(F16OfCodes<4>(pair, part), scaling.scale[i], scaling.zero[i]);
    }
  }
  return numbers;
}

}  // namespace bulkhead::cuda
