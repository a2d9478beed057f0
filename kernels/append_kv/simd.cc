// Writes keys and values into the cache, quantised as memory/kv_cache.h says.
#include "simd.h"
#include "kernels/append_kv/op.h"
#include "kernels/simd/e4m3.h"
#include "kernels/simd/number_format.h"

namespace bulkhead::BH_ISA {
namespace {

// Quantisation parameters of a vector of d numbers.
struct Quantizer {
  uint16_t scale;  // f16
  uint16_t zero;
  F32x16 zeros;
  F32x16 inverse;  // 0 if scale is 0, which makes the codes 0
  F32x16 levels;
};

BH_INLINE float LimitedToF16(float x) {
  const float low = x < -65504.0f ? -65504.0f : x;
  return (low > 65504.0f ? 65504.0f : low) + 0.0f;
}

BH_INLINE Quantizer QuantizerOf(const float* x, int size, int levels) {
  // Lanes beyond the end repeat x[0]. The sum of x * 0 shows whether all are finite; max of -x is
  // -min.
  const F32x16 first = Set1(x[0]);
  F32x16 max = first;
  F32x16 negated_min = Sub(Zero(), first);
  F32x16 taint = Zero();
  for (int i = 0; i < size; i += kLanes) {
    const int n = size - i;
    const F32x16 v = n >= kLanes ? Load(x + i) : Select(FirstN(n), LoadN(x + i, n), first);
    max = Max(max, v);
    negated_min = Max(negated_min, Sub(Zero(), v));
    taint = Fma(v, Zero(), taint);
  }
  const float sum = SumLanes(taint);
  if (sum != sum) return {0x7E00, 0x7E00, Zero(), Zero(), Zero()};
  const float min = LimitedToF16(-MaxLanes(negated_min));
  const float range = LimitedToF16(MaxLanes(max)) - min;
  const uint16_t scale = F16OfF32(range / static_cast<float>(levels));
  const uint16_t zero = F16OfF32(min);
  const float step = F32OfF16(scale);
  return {scale, zero, Set1(F32OfF16(zero)), Set1(step == 0.0f ? 0.0f : 1.0f / step),
          Set1(static_cast<float>(levels))};
}

// Codes of 16 numbers, in the low bytes.
BH_INLINE I32x16 CodesOf(F32x16 x, const Quantizer& q) {
  const F32x16 steps = Mul(Sub(x, q.zeros), q.inverse);
  const F32x16 limited = Min(Max(steps, Zero()), q.levels);
  return BitsOf(Add(limited, Set1(0x1p23f)));  // an integer, rounded to nearest even
}

struct F32Format {
  using Element = float;
  BH_INLINE static void Store(float* p, F32x16 v, int n) { StoreN(p, v, n); }
};
struct Bf16Format {
  using Element = uint16_t;
  BH_INLINE static void Store(uint16_t* p, F32x16 v, int n) { StoreBf16N(p, v, n); }
};
struct F16Format {
  using Element = uint16_t;
  BH_INLINE static void Store(uint16_t* p, F32x16 v, int n) { StoreF16N(p, v, n); }
};
struct Fp8Format {
  using Element = uint8_t;
  F32x16 scale;
  BH_INLINE void Store(uint8_t* p, F32x16 v, int n) const {
    uint8_t codes[kLanes];
    StoreBytes(codes, E4m3OfF32(v, scale));
    __builtin_memcpy(p, codes, n);
  }
};

template <typename Format>
void AppendFloats(const float* key, const float* value, int head_dim, const KvPlace& place,
                  const Format& of_keys = {}, const Format& of_values = {}) {
  using Element = typename Format::Element;
  Element* key_out = static_cast<Element*>(place.keys) + place.offset;
  Element* value_out = static_cast<Element*>(place.values) + place.offset * head_dim;
  for (int i = 0; i < head_dim; i += kLanes) {
    const int n = head_dim - i < kLanes ? head_dim - i : kLanes;
    if (place.values != nullptr) of_values.Store(value_out + i, LoadN(value + i, n), n);
    Element rounded[kLanes];
    of_keys.Store(rounded, LoadN(key + i, n), n);
    for (int lane = 0; lane < n; ++lane) key_out[(i + lane) * place.block_tokens] = rounded[lane];
  }
}

// emit(first, n, codes) for every group of 32 numbers and for the remainder.
template <int kLevels, typename Emit>
BH_INLINE void Quantize(const float* x, int size, uint16_t* scale, uint16_t* zero,
                        const Emit& emit) {
  const Quantizer quantizer = QuantizerOf(x, size, kLevels);
  *scale = quantizer.scale;
  *zero = quantizer.zero;
  for (int i = 0; i < size; i += 2 * kLanes) {
    uint8_t codes[2 * kLanes];
    const int n = size - i < 2 * kLanes ? size - i : 2 * kLanes;
    for (int c = 0; c < n; c += kLanes) {
      const F32x16 v = n - c >= kLanes ? Load(x + i + c) : LoadN(x + i + c, n - c);
      StoreBytes(codes + c, CodesOf(v, quantizer));
    }
    emit(i, n, codes);
  }
}

template <int kLevels, typename EmitKeys, typename EmitValues>
BH_INLINE void QuantizeBoth(const float* key, const float* value, int head_dim,
                            const KvPlace& place, const EmitKeys& emit_keys,
                            const EmitValues& emit_values) {
  uint16_t* scaling = place.scaling + place.offset;
  const int64_t stride = place.block_tokens;
  Quantize<kLevels>(key, head_dim, scaling, scaling + stride, emit_keys);
  if (place.values == nullptr) return;
  Quantize<kLevels>(value, head_dim, scaling + 2 * stride, scaling + 3 * stride, emit_values);
}

void AppendInt8(const float* key, const float* value, int head_dim, const KvPlace& place) {
  uint8_t* keys = static_cast<uint8_t*>(place.keys) + place.offset;
  uint8_t* values = static_cast<uint8_t*>(place.values) + place.offset * head_dim;
  QuantizeBoth<255>(
      key, value, head_dim, place,
      [&](int first, int n, const uint8_t* codes) {
        for (int i = 0; i < n; ++i) keys[(first + i) * place.block_tokens] = codes[i];
      },
      [&](int first, int n, const uint8_t* codes) {
        for (int i = 0; i < n; ++i) values[first + i] = codes[i];
      });
}

void AppendInt4(const float* key, const float* value, int head_dim, const KvPlace& place) {
  uint8_t* keys = static_cast<uint8_t*>(place.keys) + place.offset;
  uint8_t* values = static_cast<uint8_t*>(place.values) + place.offset * (head_dim / 2);
  const auto pair = [](int low, int high) { return static_cast<uint8_t>(low | high << 4); };
  QuantizeBoth<15>(
      key, value, head_dim, place,
      [&](int first, int n, const uint8_t* codes) {
        for (int i = 0; i < n; i += 2) {
          keys[(first + i) / 2 * place.block_tokens] = pair(codes[i], codes[i + 1]);
        }
      },
      [&](int first, int n, const uint8_t* codes) {
        for (int i = 0; i < n / 2; ++i) {
          values[first / 2 + i] = pair(codes[i], codes[i + n / 2]);
        }
      });
}

}  // namespace

void AppendToken(const float* key, const float* value, int head_dim, KvFormat format,
                 const KvPlace& place) {
  switch (format) {
    case KvFormat::kF32:
      return AppendFloats<F32Format>(key, value, head_dim, place);
    case KvFormat::kBF16:
      return AppendFloats<Bf16Format>(key, value, head_dim, place);
    case KvFormat::kF16:
      return AppendFloats<F16Format>(key, value, head_dim, place);
    case KvFormat::kInt8:
      return AppendInt8(key, value, head_dim, place);
    case KvFormat::kInt4:
      return AppendInt4(key, value, head_dim, place);
    case KvFormat::kFP8:
      return AppendFloats<Fp8Format>(key, value, head_dim, place, {Set1(place.key_scale)},
                                     {Set1(place.value_scale)});
  }
}

}  // namespace bulkhead::BH_ISA
