// Shared by avx512 and avx512vnni; their simd.h includes this.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace bulkhead::BH_ISA {

inline constexpr int kLanes = 16;

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct Mask16 {
  __mmask16 m;
};

// ---- lanes: n in [0, 16]; lanes from n on are read as zero and not written
BH_INLINE Mask16 FirstN(int n) { return {static_cast<__mmask16>((1u << n) - 1)}; }
BH_INLINE F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
BH_INLINE F32x16 LoadN(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstN(n).m, p)}; }
BH_INLINE void Store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
BH_INLINE void StoreN(float* p, F32x16 a, int n) { _mm512_mask_storeu_ps(p, FirstN(n).m, a.v); }
BH_INLINE F32x16 Set1(float x) { return {_mm512_set1_ps(x)}; }
BH_INLINE F32x16 Zero() { return {_mm512_setzero_ps()}; }

// ---- arithmetic, each one IEEE operation
BH_INLINE F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
BH_INLINE F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
BH_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
BH_INLINE F32x16 Div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, and c - a * b, rounded once.
BH_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
BH_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b, and a < b ? a : b: b if either is NaN, and for two zeros.
BH_INLINE F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
BH_INLINE F32x16 Min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }

// ---- comparisons: false if either is NaN
BH_INLINE Mask16 Less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
BH_INLINE Mask16 And(Mask16 a, Mask16 b) { return {static_cast<__mmask16>(a.m & b.m)}; }
BH_INLINE F32x16 Select(Mask16 m, F32x16 if_true, F32x16 if_false) {
  return {_mm512_mask_blend_ps(m.m, if_false.v, if_true.v)};
}

// ---- integers, wrapping
BH_INLINE I32x16 SetI1(int32_t x) { return {_mm512_set1_epi32(x)}; }
BH_INLINE I32x16 LoadI(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
BH_INLINE I32x16 MaxI(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
BH_INLINE I32x16 Add(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
BH_INLINE I32x16 Sub(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
BH_INLINE I32x16 And(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
BH_INLINE I32x16 Or(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
// Unsigned bytes, wrapping.
BH_INLINE I32x16 AddBytes(I32x16 a, I32x16 b) { return {_mm512_add_epi8(a.v, b.v)}; }
BH_INLINE I32x16 MinBytes(I32x16 a, I32x16 b) { return {_mm512_min_epu8(a.v, b.v)}; }
// 16-bit words: each is 16 times its even (low) or odd (high) byte.
template <bool kOdd>
BH_INLINE I32x16 BytesBy16(I32x16 a) {
  return {_mm512_maddubs_epi16(a.v, _mm512_set1_epi16(kOdd ? 16 << 8 : 16))};
}
// Each byte of `indices`, below 16, becomes that byte of `table` [16].
BH_INLINE I32x16 LookUpBytes(const uint8_t* table, I32x16 indices) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), indices.v)};
}
template <int kBits>
BH_INLINE I32x16 ShiftLeft(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
BH_INLINE I32x16 ShiftRight(I32x16 a) {  // shifts in zeros
  return {_mm512_srli_epi32(a.v, kBits)};
}
template <int kBits>
BH_INLINE I32x16 ShiftRightSigned(I32x16 a) {  // shifts in the sign
  return {_mm512_srai_epi32(a.v, kBits)};
}
BH_INLINE F32x16 ToF32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
// For integers that fit an int32.
BH_INLINE I32x16 ToI32(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
BH_INLINE I32x16 BitsOf(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
BH_INLINE F32x16 FromBits(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }

// Lane j of rows[i] goes to lane i of rows[j].
BH_INLINE void Transpose(I32x16 (&rows)[16]) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i].v, rows[i + 1].v);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i].v, rows[i + 1].v);
  }
  // b[4 i + j]: column j of each quarter, of rows 4 i to 4 i + 3
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xDD);
    const __m512i even_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xDD);
    rows[j].v = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + j].v = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + j].v = _mm512_shuffle_i32x4(even_low, even_high, 0xDD);
    rows[12 + j].v = _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD);
  }
}

// ---- bytes in memory, as lanes in [0, 255]; a store takes the low byte of each lane
BH_INLINE I32x16 LoadBytes(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
BH_INLINE I32x16 LoadBytesN(const uint8_t* p, int n) {
  return {_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(FirstN(n).m, p))};
}
BH_INLINE void StoreBytes(uint8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

// ---- bf16 and f16 in memory; stores round to nearest even, f16 overflows to infinity, a NaN stays
// a (quiet) NaN
BH_INLINE F32x16 WidenBf16(__m256i a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16))};
}
BH_INLINE __m256i NarrowBf16(F32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
}
BH_INLINE __m256i NarrowF16(F32x16 a) {
  return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
BH_INLINE __m256i LoadU16(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
BH_INLINE __m256i LoadU16N(const uint16_t* p, int n) {
  return _mm256_maskz_loadu_epi16(FirstN(n).m, p);
}
BH_INLINE void StoreU16(uint16_t* p, __m256i a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a);
}
BH_INLINE void StoreU16N(uint16_t* p, __m256i a, int n) {
  _mm256_mask_storeu_epi16(p, FirstN(n).m, a);
}
BH_INLINE F32x16 LoadBf16(const uint16_t* p) { return WidenBf16(LoadU16(p)); }
BH_INLINE F32x16 LoadBf16N(const uint16_t* p, int n) { return WidenBf16(LoadU16N(p, n)); }
BH_INLINE F32x16 LoadF16(const uint16_t* p) { return {_mm512_cvtph_ps(LoadU16(p))}; }
BH_INLINE F32x16 LoadF16N(const uint16_t* p, int n) { return {_mm512_cvtph_ps(LoadU16N(p, n))}; }
// E4M3 codes as numbers times 2^-8: an f16 with the same bits, but one more exponent bit. No f16
// subnormal that would slow the conversion. NaN codes become 480.
BH_INLINE F32x16 WidenE4m3(__m128i a) {
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(a), 7);
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
  return {_mm512_cvtph_ps(_mm256_and_si256(shifted, mask))};
}
BH_INLINE F32x16 LoadSmallE4m3(const uint8_t* p) {
  return WidenE4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
BH_INLINE F32x16 LoadSmallE4m3N(const uint8_t* p, int n) {
  return WidenE4m3(_mm_maskz_loadu_epi8(FirstN(n).m, p));
}
BH_INLINE void StoreBf16(uint16_t* p, F32x16 a) { StoreU16(p, NarrowBf16(a)); }
BH_INLINE void StoreBf16N(uint16_t* p, F32x16 a, int n) { StoreU16N(p, NarrowBf16(a), n); }
BH_INLINE void StoreF16(uint16_t* p, F32x16 a) { StoreU16(p, NarrowF16(a)); }
BH_INLINE void StoreF16N(uint16_t* p, F32x16 a, int n) { StoreU16N(p, NarrowF16(a), n); }
// 16 pairs of bf16: the low halves of the words, and the high halves.
BH_INLINE F32x16 LoadBf16Low(const uint32_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
BH_INLINE F32x16 LoadBf16High(const uint32_t* p) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), mask))};
}

// Pairs of the first `n` numbers of two bf16 rows, followed by 0: [16][2].
BH_INLINE void InterleaveNumbers(const uint16_t* even, const uint16_t* odd, int n, void* pairs) {
  const __m512i first = _mm512_cvtepu16_epi32(LoadU16N(even, n));
  const __m512i second = _mm512_cvtepu16_epi32(LoadU16N(odd, n));
  _mm512_storeu_si512(pairs, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
}

// Whether all of `n` bf16 numbers, at most 32, are finite.
BH_INLINE bool AreFinite(const uint16_t* numbers, int n) {
  const auto first = static_cast<__mmask32>((uint64_t{1} << n) - 1);
  const __m512i exponents = _mm512_set1_epi16(0x7F80);
  const __m512i found = _mm512_and_si512(_mm512_maskz_loadu_epi16(first, numbers), exponents);
  return _mm512_cmpeq_epi16_mask(found, exponents) == 0;
}

// ---- over the lanes: i with i + 8, then + 4, + 2, + 1
BH_INLINE float SumLanes(F32x16 a) {
  const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
BH_INLINE float MaxLanes(F32x16 a) {
  const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
  const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), high);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

BH_INLINE int32_t MaxLanes(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
BH_INLINE int32_t SumLanes(I32x16 a) { return _mm512_reduce_add_epi32(a.v); }

// Into L1, and into L2.
BH_INLINE void Prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
BH_INLINE void PrefetchLater(const void* p) { __builtin_prefetch(p, 0, 2); }
BH_INLINE void PrefetchToWrite(const void* p) { __builtin_prefetch(p, 1, 3); }

// ---- products: how many rows and vectors of 16 columns fit the 32 registers
inline constexpr int kTileRows = 12;
inline constexpr int kTileVectors = 2;

}  // namespace bulkhead::BH_ISA
