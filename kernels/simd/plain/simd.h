// The vector types and functions of the CPU kernels, 16 lanes of f32: here an array, for any
// x86-64. Described in simd/avx512/simd.h and simd/avx512.h; names and bits are the same.
#pragma once

#include <emmintrin.h>
#include <stdint.h>

#include "kernels/simd/number_format.h"

#define BH_ISA plain
#define BH_INLINE [[gnu::always_inline]] inline

namespace bulkhead::BH_ISA {

inline constexpr int kLanes = 16;

struct F32x16 {
  float v[kLanes];
};
struct I32x16 {
  int32_t v[kLanes];
};
struct Mask16 {
  bool v[kLanes];
};

// out.v[i] = f(i)
template <typename Out, typename F>
BH_INLINE Out ForLanes(const F& f) {
  Out out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
  return out;
}

// ---- lanes
BH_INLINE Mask16 FirstN(int n) {
  return ForLanes<Mask16>([&](int i) { return i < n; });
}
BH_INLINE F32x16 Load(const float* p) {
  return ForLanes<F32x16>([&](int i) { return p[i]; });
}
BH_INLINE F32x16 LoadN(const float* p, int n) {
  return ForLanes<F32x16>([&](int i) { return i < n ? p[i] : 0.0f; });
}
BH_INLINE void Store(float* p, F32x16 a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
BH_INLINE void StoreN(float* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
BH_INLINE F32x16 Set1(float x) {
  return ForLanes<F32x16>([&](int) { return x; });
}
BH_INLINE F32x16 Zero() { return Set1(0.0f); }

// ---- arithmetic
BH_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] + b.v[i]; });
}
BH_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] - b.v[i]; });
}
BH_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] * b.v[i]; });
}
BH_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] / b.v[i]; });
}
BH_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return ForLanes<F32x16>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
BH_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return ForLanes<F32x16>([&](int i) { return __builtin_fmaf(-a.v[i], b.v[i], c.v[i]); });
}
BH_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
BH_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return ForLanes<F32x16>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

// ---- comparisons
BH_INLINE Mask16 Less(F32x16 a, F32x16 b) {
  return ForLanes<Mask16>([&](int i) { return a.v[i] < b.v[i]; });
}
BH_INLINE Mask16 And(Mask16 a, Mask16 b) {
  return ForLanes<Mask16>([&](int i) { return a.v[i] && b.v[i]; });
}
BH_INLINE F32x16 Select(Mask16 m, F32x16 if_true, F32x16 if_false) {
  return ForLanes<F32x16>([&](int i) { return m.v[i] ? if_true.v[i] : if_false.v[i]; });
}

// ---- integers
BH_INLINE int32_t Wrapped(uint32_t x) { return static_cast<int32_t>(x); }
BH_INLINE uint32_t Unsigned(int32_t x) { return static_cast<uint32_t>(x); }
BH_INLINE I32x16 SetI1(int32_t x) {
  return ForLanes<I32x16>([&](int) { return x; });
}
BH_INLINE I32x16 LoadI(const int32_t* p) {  // codes may be unaligned
  I32x16 a;
  __builtin_memcpy(a.v, p, sizeof(a.v));
  return a;
}
BH_INLINE I32x16 MaxI(I32x16 a, I32x16 b) {
  return ForLanes<I32x16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
BH_INLINE I32x16 Add(I32x16 a, I32x16 b) {
  return ForLanes<I32x16>([&](int i) { return Wrapped(Unsigned(a.v[i]) + Unsigned(b.v[i])); });
}
BH_INLINE I32x16 Sub(I32x16 a, I32x16 b) {
  return ForLanes<I32x16>([&](int i) { return Wrapped(Unsigned(a.v[i]) - Unsigned(b.v[i])); });
}
BH_INLINE I32x16 And(I32x16 a, I32x16 b) {
  return ForLanes<I32x16>([&](int i) { return a.v[i] & b.v[i]; });
}
BH_INLINE I32x16 Or(I32x16 a, I32x16 b) {
  return ForLanes<I32x16>([&](int i) { return a.v[i] | b.v[i]; });
}
// f of every two bytes.
template <typename F>
BH_INLINE I32x16 ForBytes(I32x16 a, I32x16 b, const F& f) {
  uint8_t x[4 * kLanes], y[4 * kLanes];
  __builtin_memcpy(x, a.v, sizeof(x));
  __builtin_memcpy(y, b.v, sizeof(y));
  for (int i = 0; i < 4 * kLanes; ++i) x[i] = f(x[i], y[i]);
  __builtin_memcpy(a.v, x, sizeof(x));
  return a;
}
BH_INLINE I32x16 AddBytes(I32x16 a, I32x16 b) {
  return ForBytes(a, b, [](uint8_t x, uint8_t y) { return static_cast<uint8_t>(x + y); });
}
BH_INLINE I32x16 MinBytes(I32x16 a, I32x16 b) {
  return ForBytes(a, b, [](uint8_t x, uint8_t y) { return x < y ? x : y; });
}
BH_INLINE I32x16 LookUpBytes(const uint8_t* table, I32x16 indices) {
  return ForBytes(indices, indices, [&](uint8_t x, uint8_t) { return table[x & 0xF]; });
}
template <int kBits>
BH_INLINE I32x16 ShiftLeft(I32x16 a) {
  return ForLanes<I32x16>([&](int i) { return Wrapped(Unsigned(a.v[i]) << kBits); });
}
template <int kBits>
BH_INLINE I32x16 ShiftRight(I32x16 a) {
  return ForLanes<I32x16>([&](int i) { return Wrapped(Unsigned(a.v[i]) >> kBits); });
}
template <int kBits>
BH_INLINE I32x16 ShiftRightSigned(I32x16 a) {
  return ForLanes<I32x16>([&](int i) { return a.v[i] >> kBits; });
}
template <bool kOdd>
BH_INLINE I32x16 BytesBy16(I32x16 a) {
  return And(kOdd ? ShiftRight<4>(a) : ShiftLeft<4>(a), SetI1(0x0FF00FF0));
}
BH_INLINE F32x16 ToF32(I32x16 a) {
  return ForLanes<F32x16>([&](int i) { return static_cast<float>(a.v[i]); });
}
BH_INLINE I32x16 ToI32(F32x16 a) {
  return ForLanes<I32x16>([&](int i) { return static_cast<int32_t>(a.v[i]); });
}
inline constexpr int kDotBytesZero = 0;
BH_INLINE I32x16 DotBytes(I32x16 acc, I32x16 a, I32x16 b) {
  for (int i = 0; i < kLanes; ++i) {
    for (int shift = 0; shift < 32; shift += 8) {
      const auto code = static_cast<int32_t>((Unsigned(a.v[i]) >> shift) & 0xFF);
      const auto input = static_cast<int8_t>((Unsigned(b.v[i]) >> shift) & 0xFF);
      acc.v[i] += code * input;
    }
  }
  return acc;
}
inline constexpr bool kNibbleSumsAreShort = false;
BH_INLINE I32x16 DotNibbles(I32x16 acc, I32x16 a, I32x16 b) { return DotBytes(acc, a, b); }
BH_INLINE I32x16 WidenNibbleSums(I32x16 acc) { return acc; }
BH_INLINE I32x16 BitsOf(F32x16 a) {
  return ForLanes<I32x16>([&](int i) { return Wrapped(BitsOfF32(a.v[i])); });
}
BH_INLINE F32x16 FromBits(I32x16 a) {
  return ForLanes<F32x16>([&](int i) { return F32OfBits(Unsigned(a.v[i])); });
}

BH_INLINE void Transpose(I32x16 (&rows)[16]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const int32_t lane = rows[i].v[j];
      rows[i].v[j] = rows[j].v[i];
      rows[j].v[i] = lane;
    }
  }
}

// ---- bytes in memory
BH_INLINE I32x16 LoadBytesN(const uint8_t* p, int n) {
  return ForLanes<I32x16>([&](int i) { return i < n ? p[i] : 0; });
}
BH_INLINE I32x16 LoadBytes(const uint8_t* p) { return LoadBytesN(p, kLanes); }
BH_INLINE void StoreBytes(uint8_t* p, I32x16 a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(a.v[i]);
}

// ---- bf16 and f16 in memory
BH_INLINE F32x16 LoadBf16N(const uint16_t* p, int n) {
  return ForLanes<F32x16>([&](int i) { return i < n ? F32OfBf16(p[i]) : 0.0f; });
}
BH_INLINE F32x16 LoadF16N(const uint16_t* p, int n) {
  return ForLanes<F32x16>([&](int i) { return i < n ? F32OfF16(p[i]) : 0.0f; });
}
// As in avx512.h.
BH_INLINE F32x16 LoadSmallE4m3N(const uint8_t* p, int n) {
  return ForLanes<F32x16>([&](int i) {
    return i < n ? F32OfF16(static_cast<uint16_t>((p[i] & 0x80U) << 8 | (p[i] & 0x7FU) << 7))
                 : 0.0f;
  });
}
BH_INLINE F32x16 LoadSmallE4m3(const uint8_t* p) { return LoadSmallE4m3N(p, kLanes); }
BH_INLINE void StoreBf16N(uint16_t* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = Bf16OfF32(a.v[i]);
}
BH_INLINE void StoreF16N(uint16_t* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = F16OfF32(a.v[i]);
}
BH_INLINE F32x16 LoadBf16(const uint16_t* p) { return LoadBf16N(p, kLanes); }
BH_INLINE F32x16 LoadF16(const uint16_t* p) { return LoadF16N(p, kLanes); }
BH_INLINE void StoreBf16(uint16_t* p, F32x16 a) { StoreBf16N(p, a, kLanes); }
BH_INLINE void StoreF16(uint16_t* p, F32x16 a) { StoreF16N(p, a, kLanes); }
BH_INLINE F32x16 LoadBf16Low(const uint32_t* p) {
  return ForLanes<F32x16>([&](int i) { return F32OfBits(p[i] << 16); });
}
BH_INLINE F32x16 LoadBf16High(const uint32_t* p) {
  return ForLanes<F32x16>([&](int i) { return F32OfBits(p[i] & 0xFFFF0000u); });
}

BH_INLINE void InterleaveNumbers(const uint16_t* even, const uint16_t* odd, int n, void* pairs) {
  for (int i = 0; i < kLanes; ++i) {
    const uint16_t pair[2] = {i < n ? even[i] : uint16_t{0}, i < n ? odd[i] : uint16_t{0}};
    __builtin_memcpy(static_cast<char*>(pairs) + 4 * i, pair, sizeof(pair));
  }
}
BH_INLINE bool AreFinite(const uint16_t* numbers, int n) {
  bool finite = true;
  for (int i = 0; i < n; ++i) finite = finite && (numbers[i] & 0x7F80) != 0x7F80;
  return finite;
}

// ---- over the lanes
BH_INLINE float SumLanes(F32x16 a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
BH_INLINE float MaxLanes(F32x16 a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

BH_INLINE int32_t MaxLanes(I32x16 a) {
  for (int i = 1; i < kLanes; ++i) a.v[0] = a.v[0] > a.v[i] ? a.v[0] : a.v[i];
  return a.v[0];
}
BH_INLINE int32_t SumLanes(I32x16 a) {
  for (int i = 1; i < kLanes; ++i) a.v[0] += a.v[i];
  return a.v[0];
}

BH_INLINE void Prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
BH_INLINE void PrefetchLater(const void* p) { __builtin_prefetch(p, 0, 2); }
BH_INLINE void PrefetchToWrite(const void* p) { __builtin_prefetch(p, 1, 3); }

// ---- products
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = 2;
inline constexpr int kInt8TileRows = 2;
inline constexpr int kInt8TileVectors = 2;

// Nothing computed from or into `a` moves past this.
BH_INLINE void Pin(F32x16& a) { asm volatile("" : "+m"(a)); }
BH_INLINE void Pin(I32x16& a) { asm volatile("" : "+m"(a)); }

}  // namespace bulkhead::BH_ISA

#include "kernels/simd/bf16_pairs.h"
