// E4M3 codes as f32 and back, 16 at a time; values: memory/fp8.h. Compiled per instruction set.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

// Added to a code without its sign (entry 8: codes 8 and above): gives a code with five exponent
// bits, in which numbers below 2^-6 are not subnormal. Intel's CPUs multiply subnormal f32s a
// hundred times slower.
alignas(16) inline constexpr uint8_t kWideE4m3Steps[16] = {0,   111, 118, 121, 124,
                                                           125, 126, 127, 128};

// 16 words of four codes each, as pairs of bf16: bytes 0 and 2, and bytes 1 and 3.
struct E4m3Pairs {
  I32x16 even;
  I32x16 odd;
};

BH_INLINE E4m3Pairs LoadE4m3Pairs(const int32_t* words) {
  const I32x16 codes = LoadI(words);
  const I32x16 magnitudes = And(codes, SetI1(0x7F7F7F7F));
  const I32x16 steps = LookUpBytes(kWideE4m3Steps, MinBytes(magnitudes, SetI1(0x08080808)));
  const I32x16 wide = AddBytes(magnitudes, steps);
  const I32x16 signs = SetI1(static_cast<int32_t>(0x80008000));
  return {Or(BytesBy16<false>(wide), And(ShiftLeft<8>(codes), signs)),
          Or(BytesBy16<true>(wide), And(codes, signs))};
}

// The numbers of byte `kByte` of each word, times 2^-104; NaN codes become 480.
template <int kByte>
BH_INLINE F32x16 SmallE4m3Of(const E4m3Pairs& pairs) {
  const I32x16 pair = kByte % 2 == 0 ? pairs.even : pairs.odd;
  return FromBits(kByte < 2 ? ShiftLeft<16>(pair)
                            : And(pair, SetI1(static_cast<int32_t>(0xFFFF0000))));
}

// Completes the result of LoadSmallE4m3. A product that overflows only at 480 adds NaN there, and
// elsewhere a zero of the number's sign.
BH_INLINE F32x16 F32OfE4m3(F32x16 small) {
  const F32x16 number = Mul(small, Set1(0x1p8f));
  return Fma(Mul(number, Set1(0x1.2p119f)), Zero(), number);
}

// The codes of x / scale, in the low bytes (memory/fp8.h: E4m3OfF32).
BH_INLINE I32x16 E4m3OfF32(F32x16 x, F32x16 scale) {
  const I32x16 quotient = BitsOf(Div(x, scale));
  const F32x16 magnitude = Min(FromBits(And(quotient, SetI1(0x7FFFFFFF))), Set1(448.0f));
  // 2^(e + 20) for exponent e >= -6: adding it leaves three bits of the number's fraction.
  const I32x16 exponent = And(BitsOf(Max(magnitude, Set1(0x1p-6f))), SetI1(0x7F800000));
  const F32x16 unit = FromBits(Add(exponent, SetI1(20 << 23)));
  const F32x16 rounded = Sub(Add(magnitude, unit), unit);
  // From 2^-6 (code 8) on, the exponent and fraction bits; below, where these would be less, the
  // multiple of 2^-9.
  const I32x16 normal = Sub(ShiftRight<20>(BitsOf(rounded)), SetI1(120 << 3));
  const I32x16 subnormal = ToI32(Min(Mul(rounded, Set1(0x1p9f)), Set1(8.0f)));
  const I32x16 code = Add(MaxI(normal, subnormal), And(ShiftRight<24>(quotient), SetI1(0x80)));
  const Mask16 finite = Less(FromBits(And(BitsOf(x), SetI1(0x7FFFFFFF))), Set1(__builtin_inff()));
  return BitsOf(Select(finite, FromBits(code), FromBits(SetI1(0x7F))));
}

}  // namespace bulkhead::BH_ISA
