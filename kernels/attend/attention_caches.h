// The cache's formats as attention reads them: vectors of keys (lanes along tokens) and of values
// (lanes along the head), widened to f32. Layout and numbers: memory/kv_cache.h.
//   Element       element type of pointers into the cache
//   kInMemory     whether its numbers are worth prefetching
//   kQuantized    whether numbers have a scale and a zero
//   kNumbers      numbers in one element
//   kColumns      columns of a value read together: d must be a multiple to read without widening
//   LoadKeys      out[kNumbers]: the numbers at `p` of 16 adjacent tokens
//   LoadColumns   out[kVectors]: columns [column, column + 16 kVectors) of the value at `p`
//   WidenValue    a whole value of d columns, padded with any numbers to `width`, a multiple of 16
#pragma once

#include "kernels/simd/e4m3.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

struct Scaling {
  F32x16 scale;
  F32x16 zero;
};

// For each token of a chunk; only for quantised caches.
struct TokenScalings {
  const float* scales;
  const float* zeros;
};

// For 16 adjacent tokens, and for one token in all lanes.
template <typename Cache>
BH_INLINE Scaling ScalingOfTokens(const TokenScalings& scalings, int first) {
  if constexpr (Cache::kQuantized)
    return {Load(scalings.scales + first), Load(scalings.zeros + first)};
  return {Zero(), Zero()};  // never used
}
template <typename Cache>
BH_INLINE Scaling ScalingOfToken(const TokenScalings& scalings, int token) {
  if constexpr (Cache::kQuantized)
    return {Set1(scalings.scales[token]), Set1(scalings.zeros[token])};
  return {Zero(), Zero()};
}

BH_INLINE F32x16 Dequantized(I32x16 codes, const Scaling& scaling) {
  return Fma(ToF32(codes), scaling.scale, scaling.zero);
}

// Load(p) and LoadN(p, n) for formats with one number per element.
struct F32Elements {
  using Element = float;
  static constexpr bool kQuantized = false;
  BH_INLINE static F32x16 Read(const float* p, const Scaling&) { return Load(p); }
  BH_INLINE static F32x16 ReadN(const float* p, int n, const Scaling&) { return LoadN(p, n); }
};
struct Bf16Elements {
  using Element = uint16_t;
  static constexpr bool kQuantized = false;
  BH_INLINE static F32x16 Read(const uint16_t* p, const Scaling&) { return LoadBf16(p); }
  BH_INLINE static F32x16 ReadN(const uint16_t* p, int n, const Scaling&) {
    return LoadBf16N(p, n);
  }
};
struct F16Elements {
  using Element = uint16_t;
  static constexpr bool kQuantized = false;
  BH_INLINE static F32x16 Read(const uint16_t* p, const Scaling&) { return LoadF16(p); }
  BH_INLINE static F32x16 ReadN(const uint16_t* p, int n, const Scaling&) { return LoadF16N(p, n); }
};
// Without the scales of keys and values.
struct Fp8Elements {
  using Element = uint8_t;
  static constexpr bool kQuantized = false;
  BH_INLINE static F32x16 Read(const uint8_t* p, const Scaling&) {
    return F32OfE4m3(LoadSmallE4m3(p));
  }
  BH_INLINE static F32x16 ReadN(const uint8_t* p, int n, const Scaling&) {
    return F32OfE4m3(LoadSmallE4m3N(p, n));
  }
};
struct Int8Elements {
  using Element = uint8_t;
  static constexpr bool kQuantized = true;
  BH_INLINE static F32x16 Read(const uint8_t* p, const Scaling& s) {
    return Dequantized(LoadBytes(p), s);
  }
  BH_INLINE static F32x16 ReadN(const uint8_t* p, int n, const Scaling& s) {
    return Dequantized(LoadBytesN(p, n), s);
  }
};

template <typename Elements>
struct OneNumberCache : Elements {
  using Element = typename Elements::Element;
  static constexpr bool kInMemory = true;
  static constexpr int kNumbers = 1;
  static constexpr int kColumns = kLanes;

  BH_INLINE static void LoadKeys(const Element* p, const Scaling& s, F32x16* out) {
    out[0] = Elements::Read(p, s);
  }
  template <int kVectors>
  BH_INLINE static void LoadColumns(const Element* p, int column, const Scaling& s, F32x16* out) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) out[v] = Elements::Read(p + column + v * kLanes, s);
  }
  BH_INLINE static void WidenValue(const Element* p, int d, int width, const Scaling& s,
                                   float* out) {
    for (int c = 0; c < width; c += kLanes) {
      const int n = d - c;
      Store(out + c, n >= kLanes ? Elements::Read(p + c, s) : Elements::ReadN(p + c, n, s));
    }
  }
};
using F32Cache = OneNumberCache<F32Elements>;
using Bf16Cache = OneNumberCache<Bf16Elements>;
using F16Cache = OneNumberCache<F16Elements>;
using Int8Cache = OneNumberCache<Int8Elements>;
using Fp8Cache = OneNumberCache<Fp8Elements>;

// A span after widening to f32.
struct WidenedSpan : F32Cache {
  static constexpr bool kInMemory = false;
};

struct Int4Cache {
  using Element = uint8_t;
  static constexpr bool kInMemory = true;
  static constexpr bool kQuantized = true;
  static constexpr int kNumbers = 2;
  static constexpr int kColumns = 2 * kLanes;

  BH_INLINE static F32x16 Low(I32x16 bytes, const Scaling& s) {
    return Dequantized(And(bytes, SetI1(15)), s);
  }
  BH_INLINE static F32x16 High(I32x16 bytes, const Scaling& s) {
    return Dequantized(ShiftRight<4>(bytes), s);
  }
  BH_INLINE static void LoadKeys(const uint8_t* p, const Scaling& s, F32x16* out) {
    const I32x16 bytes = LoadBytes(p);
    out[0] = Low(bytes, s);
    out[1] = High(bytes, s);
  }
  template <int kVectors>
  BH_INLINE static void LoadColumns(const uint8_t* p, int column, const Scaling& s, F32x16* out) {
    if constexpr (kVectors == 1) {
      const I32x16 bytes = LoadBytes(p + column / kColumns * kLanes);
      out[0] = column % kColumns == 0 ? Low(bytes, s) : High(bytes, s);
    } else {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; v += 2) LoadKeys(p + column / 2 + v * kLanes / 2, s, out + v);
    }
  }
  BH_INLINE static void WidenValue(const uint8_t* p, int d, int width, const Scaling& s,
                                   float* out) {
    int c = 0;
    for (; c + kColumns <= d; c += kColumns) {
      const I32x16 bytes = LoadBytes(p + c / 2);
      Store(out + c, Low(bytes, s));
      Store(out + c + kLanes, High(bytes, s));
    }
    if (c == d) return;
    const int half = (d - c) / 2;
    const I32x16 bytes = LoadBytesN(p + c / 2, half);
    Store(out + c, Low(bytes, s));
    StoreN(out + c + half, High(bytes, s), width - c - half < kLanes ? width - c - half : kLanes);
  }
};

}  // namespace bulkhead::BH_ISA
