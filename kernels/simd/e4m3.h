// E4M3 codes as f32 and back, 16 at a time; memory/fp8.h has the numbers. Compiled per instruction
// set.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

// E4M3 as f32, but for 2^-120; NaN codes as 480. The addition carries the sign from bit 27 to 31.
// Numbers below 2^-6 are subnormal then, which Intel's CPUs multiply a hundred times slower: for
// weights and scales, whose largest number is near 448.
BH_INLINE F32x16 SmallE4m3(I32x16 code) {
  const I32x16 carried = Add(ShiftLeft<20>(code), SetI1(0x78000000));
  return FromBits(And(carried, SetI1(static_cast<int32_t>(0x87F00000))));
}

// The same of byte `kByte` of each lane.
template <int kByte>
BH_INLINE F32x16 SmallE4m3Of(I32x16 words) {
  const I32x16 high = kByte == 3 ? words : ShiftLeft<24 - 8 * (kByte % 4)>(words);
  return FromBits(And(ShiftRightSigned<4>(high), SetI1(static_cast<int32_t>(0x87F00000))));
}

// Of what LoadSmallE4m3 loads. A product that overflows at 480 alone adds NaN there, and elsewhere
// a zero of the number's sign.
BH_INLINE F32x16 F32OfE4m3(F32x16 small) {
  const F32x16 number = Mul(small, Set1(0x1p8f));
  return Fma(Mul(number, Set1(0x1.2p119f)), Zero(), number);
}

// The codes of x / scale, in the low bytes (memory/fp8.h: E4m3OfF32).
BH_INLINE I32x16 E4m3OfF32(F32x16 x, F32x16 scale) {
  const I32x16 quotient = BitsOf(Div(x, scale));
  const F32x16 magnitude = Min(FromBits(And(quotient, SetI1(0x7FFFFFFF))), Set1(448.0f));
  // 2^(e + 20) of a number with exponent e, -6 or more: in a sum with it three bits of the number's
  // fraction are left.
  const I32x16 exponent = And(BitsOf(Max(magnitude, Set1(0x1p-6f))), SetI1(0x7F800000));
  const F32x16 unit = FromBits(Add(exponent, SetI1(20 << 23)));
  const F32x16 rounded = Sub(Add(magnitude, unit), unit);
  // From 2^-6 on, code 8, the bits of exponent and fraction; below, where these say less than the
  // number does, how often 2^-9.
  const I32x16 normal = Sub(ShiftRight<20>(BitsOf(rounded)), SetI1(120 << 3));
  const I32x16 subnormal = ToI32(Min(Mul(rounded, Set1(0x1p9f)), Set1(8.0f)));
  const I32x16 code = Add(MaxI(normal, subnormal), And(ShiftRight<24>(quotient), SetI1(0x80)));
  const Mask16 finite = Less(FromBits(And(BitsOf(x), SetI1(0x7FFFFFFF))), Set1(__builtin_inff()));
  return BitsOf(Select(finite, FromBits(code), FromBits(SetI1(0x7F))));
}

}  // namespace bulkhead::BH_ISA
