// Quantised keys and values, as memory/kv_cache.h has them, with the vectors of one instruction
// set.
#pragma once

#include "kernels/cpu/number_format.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// What a vector of d numbers is quantised with.
struct Quantizer {
  uint16_t scale;  // f16
  uint16_t zero;
  F32x16 zeros;
  F32x16 inverse;  // 0 where scale is 0, so that the codes are, too
  F32x16 levels;
};

BH_INLINE float LimitedToF16(float x) {
  const float low = x < -65504.0f ? -65504.0f : x;
  return (low > 65504.0f ? 65504.0f : low) + 0.0f;
}

BH_INLINE Quantizer QuantizerOf(const float* x, int size, int levels) {
  // Lanes beyond the end repeat x[0]. A sum of x * 0 tells whether all are finite; max of -x is
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

// The codes of 16 numbers, in the low bytes.
BH_INLINE I32x16 CodesOf(F32x16 x, const Quantizer& q) {
  const F32x16 steps = Mul(Sub(x, q.zeros), q.inverse);
  const F32x16 limited = Min(Max(steps, Zero()), q.levels);
  return BitsOf(Add(limited, Set1(0x1p23f)));  // a whole number, to nearest even
}

}  // namespace bulkhead::BH_ISA
