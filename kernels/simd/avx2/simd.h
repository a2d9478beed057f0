// The vector types and functions of the CPU kernels, 16 lanes of f32: here two ymm registers.
// Described in simd/avx512/simd.h and simd/avx512.h; names and bits are the same.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define BH_ISA avx2
#define BH_INLINE [[gnu::always_inline]] inline

namespace bulkhead::BH_ISA {

inline constexpr int kLanes = 16;

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct Mask16 {
  __m256 lo, hi;
};

// ---- lanes
BH_INLINE __m256i FirstOfEight(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
BH_INLINE Mask16 FirstN(int n) {
  return {_mm256_castsi256_ps(FirstOfEight(n)), _mm256_castsi256_ps(FirstOfEight(n - 8))};
}
BH_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
BH_INLINE F32x16 LoadN(const float* p, int n) {
  return {_mm256_maskload_ps(p, FirstOfEight(n)), _mm256_maskload_ps(p + 8, FirstOfEight(n - 8))};
}
BH_INLINE void Store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
// A masked store takes tens of cycles on AMD's CPUs up to Zen 4.
BH_INLINE void StoreN(float* p, F32x16 a, int n) {
  if (n >= 16) return Store(p, a);
  _mm256_maskstore_ps(p, FirstOfEight(n), a.lo);
  _mm256_maskstore_ps(p + 8, FirstOfEight(n - 8), a.hi);
}
BH_INLINE F32x16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
BH_INLINE F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

// ---- arithmetic
BH_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
BH_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
BH_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

// ---- comparisons
BH_INLINE Mask16 Less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
BH_INLINE Mask16 And(Mask16 a, Mask16 b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
BH_INLINE F32x16 Select(Mask16 m, F32x16 if_true, F32x16 if_false) {
  return {_mm256_blendv_ps(if_false.lo, if_true.lo, m.lo),
          _mm256_blendv_ps(if_false.hi, if_true.hi, m.hi)};
}

// ---- integers
BH_INLINE I32x16 SetI1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
BH_INLINE I32x16 LoadI(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
BH_INLINE I32x16 MaxI(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
BH_INLINE I32x16 Add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
BH_INLINE I32x16 Sub(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
BH_INLINE I32x16 And(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
BH_INLINE I32x16 Or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
BH_INLINE I32x16 AddBytes(I32x16 a, I32x16 b) {
  return {_mm256_add_epi8(a.lo, b.lo), _mm256_add_epi8(a.hi, b.hi)};
}
BH_INLINE I32x16 MinBytes(I32x16 a, I32x16 b) {
  return {_mm256_min_epu8(a.lo, b.lo), _mm256_min_epu8(a.hi, b.hi)};
}
template <bool kOdd>
BH_INLINE I32x16 BytesBy16(I32x16 a) {
  const __m256i factors = _mm256_set1_epi16(kOdd ? 16 << 8 : 16);
  return {_mm256_maddubs_epi16(a.lo, factors), _mm256_maddubs_epi16(a.hi, factors)};
}
BH_INLINE I32x16 LookUpBytes(const uint8_t* table, I32x16 indices) {
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(bytes, indices.lo), _mm256_shuffle_epi8(bytes, indices.hi)};
}
template <int kBits>
BH_INLINE I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
BH_INLINE I32x16 ShiftRight(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
template <int kBits>
BH_INLINE I32x16 ShiftRightSigned(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
BH_INLINE F32x16 ToF32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
BH_INLINE I32x16 ToI32(F32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
// |a - 128| times b with the sign of a - 128: pairs of such products fit 16 bits.
inline constexpr int kDotBytesZero = 128;
BH_INLINE __m256i DotEight(__m256i acc, __m256i a, __m256i b) {
  const __m256i weight = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(b, weight));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
BH_INLINE I32x16 DotBytes(I32x16 acc, I32x16 a, I32x16 b) {
  return {DotEight(acc.lo, a.lo, b.lo), DotEight(acc.hi, a.hi, b.hi)};
}
inline constexpr bool kNibbleSumsAreShort = true;
// In place: g++ would add into another register and move it back.
BH_INLINE void AddInPlace(__m256i& acc, __m256i b) {
  asm("vpaddw %1, %0, %0" : "+x"(acc) : "x"(b));
}
BH_INLINE I32x16 DotNibbles(I32x16 acc, I32x16 a, I32x16 b) {
  AddInPlace(acc.lo, _mm256_maddubs_epi16(a.lo, b.lo));
  AddInPlace(acc.hi, _mm256_maddubs_epi16(a.hi, b.hi));
  return acc;
}
BH_INLINE I32x16 WidenNibbleSums(I32x16 acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(acc.lo, ones), _mm256_madd_epi16(acc.hi, ones)};
}
BH_INLINE I32x16 BitsOf(F32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
BH_INLINE F32x16 FromBits(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}

BH_INLINE void TransposeEight(__m256i (&r)[8]) {
  __m256i a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm256_permute2x128_si256(b[j], b[4 + j], 0x20);
    r[4 + j] = _mm256_permute2x128_si256(b[j], b[4 + j], 0x31);
  }
}
BH_INLINE void Transpose(I32x16 (&rows)[16]) {
  __m256i q[4][8];  // quarters: upper left, upper right, lower left, lower right
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    q[0][i] = rows[i].lo;
    q[1][i] = rows[i].hi;
    q[2][i] = rows[8 + i].lo;
    q[3][i] = rows[8 + i].hi;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) TransposeEight(q[i]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = {q[0][i], q[2][i]};
    rows[8 + i] = {q[1][i], q[3][i]};
  }
}

// ---- bytes in memory
BH_INLINE __m256i LoadEightBytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
BH_INLINE I32x16 LoadBytes(const uint8_t* p) { return {LoadEightBytes(p), LoadEightBytes(p + 8)}; }
BH_INLINE I32x16 LoadBytesN(const uint8_t* p, int n) {
  uint8_t lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, n);
  return LoadBytes(lanes);
}
BH_INLINE void StoreBytes(uint8_t* p, I32x16 a) {
  const __m256i low = _mm256_set1_epi32(0xFF);
  const __m256i mixed =
      _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
  const __m256i words = _mm256_permute4x64_epi64(mixed, 0xD8);  // lo, then hi
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// ---- bf16 and f16 in memory
BH_INLINE __m128i LoadEightU16(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
BH_INLINE void StoreEightU16(uint16_t* p, __m128i a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a);
}
BH_INLINE __m256 WidenBf16(__m128i a) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16));
}
BH_INLINE __m128i NarrowBf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  const __m256i packed = _mm256_packus_epi32(chosen, chosen);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
BH_INLINE __m128i NarrowF16(__m256 a) {
  return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
BH_INLINE F32x16 LoadBf16(const uint16_t* p) {
  return {WidenBf16(LoadEightU16(p)), WidenBf16(LoadEightU16(p + 8))};
}
BH_INLINE F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(LoadEightU16(p)), _mm256_cvtph_ps(LoadEightU16(p + 8))};
}
BH_INLINE void StoreBf16(uint16_t* p, F32x16 a) {
  StoreEightU16(p, NarrowBf16(a.lo));
  StoreEightU16(p + 8, NarrowBf16(a.hi));
}
BH_INLINE void StoreF16(uint16_t* p, F32x16 a) {
  StoreEightU16(p, NarrowF16(a.lo));
  StoreEightU16(p + 8, NarrowF16(a.hi));
}
BH_INLINE F32x16 LoadBf16N(const uint16_t* p, int n) {
  uint16_t lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, n * sizeof(uint16_t));
  return LoadBf16(lanes);
}
BH_INLINE F32x16 LoadF16N(const uint16_t* p, int n) {
  uint16_t lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, n * sizeof(uint16_t));
  return LoadF16(lanes);
}
// As in avx512.h.
BH_INLINE F32x16 LoadSmallE4m3(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
  const __m256i halves = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
BH_INLINE F32x16 LoadSmallE4m3N(const uint8_t* p, int n) {
  uint8_t lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, n);
  return LoadSmallE4m3(lanes);
}
BH_INLINE void StoreBf16N(uint16_t* p, F32x16 a, int n) {
  uint16_t lanes[kLanes];
  StoreBf16(lanes, a);
  __builtin_memcpy(p, lanes, n * sizeof(uint16_t));
}
BH_INLINE void StoreF16N(uint16_t* p, F32x16 a, int n) {
  uint16_t lanes[kLanes];
  StoreF16(lanes, a);
  __builtin_memcpy(p, lanes, n * sizeof(uint16_t));
}
BH_INLINE __m256i LoadEightU32(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
BH_INLINE F32x16 LoadBf16Low(const uint32_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(LoadEightU32(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(LoadEightU32(p + 8), 16))};
}
BH_INLINE F32x16 LoadBf16High(const uint32_t* p) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(LoadEightU32(p), mask)),
          _mm256_castsi256_ps(_mm256_and_si256(LoadEightU32(p + 8), mask))};
}
BH_INLINE void InterleaveNumbers(const uint16_t* even, const uint16_t* odd, int n, void* pairs) {
  const I32x16 first = BitsOf(n < kLanes ? LoadBf16N(even, n) : LoadBf16(even));
  const I32x16 second = BitsOf(n < kLanes ? LoadBf16N(odd, n) : LoadBf16(odd));
  Store(static_cast<float*>(pairs), FromBits(Or(ShiftRight<16>(first), second)));
}
BH_INLINE bool AreFinite(const uint16_t* numbers, int n) {
  bool finite = true;
  for (int i = 0; i < n; ++i) finite = finite && (numbers[i] & 0x7F80) != 0x7F80;
  return finite;
}

// ---- over the lanes
BH_INLINE float SumLanes(F32x16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
BH_INLINE float MaxLanes(F32x16 a) {
  const __m256 s8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

BH_INLINE int32_t MaxLanes(I32x16 a) {
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_max_epi32(a.lo, a.hi));
  for (int i = 1; i < 8; ++i) lanes[0] = lanes[0] > lanes[i] ? lanes[0] : lanes[i];
  return lanes[0];
}
BH_INLINE int32_t SumLanes(I32x16 a) {
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a.lo, a.hi));
  for (int i = 1; i < 8; ++i) lanes[0] += lanes[i];
  return lanes[0];
}

BH_INLINE void Prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
BH_INLINE void PrefetchLater(const void* p) { __builtin_prefetch(p, 0, 2); }
BH_INLINE void PrefetchToWrite(const void* p) { __builtin_prefetch(p, 1, 3); }

// ---- products: 12 of the 16 registers are sums
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 1;
inline constexpr int kInt8TileRows = 6;
inline constexpr int kInt8TileVectors = 1;

// Nothing computed from or into `a` moves past this.
BH_INLINE void Pin(F32x16& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
BH_INLINE void Pin(I32x16& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }

}  // namespace bulkhead::BH_ISA

#include "kernels/simd/bf16_pairs.h"
