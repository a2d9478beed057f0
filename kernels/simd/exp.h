// exp of x <= 0 as the kernels of one instruction set compute it: kernels/simd/exp_constants.h
// says how.
#pragma once

#include "kernels/simd/exp_constants.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

BH_INLINE F32x16 Exp(F32x16 x) {
  const Mask16 is_zero = Less(x, Set1(kExpMin));
  const F32x16 t = Fma(x, Set1(kExpLog2E), Set1(kExpRoundMagic));
  const F32x16 n = Sub(t, Set1(kExpRoundMagic));
  const F32x16 r = Fnma(n, Set1(kExpLn2Low), Fnma(n, Set1(kExpLn2High), x));
  F32x16 q = Fma(Set1(kExpC6), r, Set1(kExpC5));
  q = Fma(q, r, Set1(kExpC4));
  q = Fma(q, r, Set1(kExpC3));
  q = Fma(q, r, Set1(kExpC2));
  const F32x16 p = Fma(Fma(q, r, Set1(1.0f)), r, Set1(1.0f));
  const F32x16 power = FromBits(Add(ShiftLeft<23>(BitsOf(t)), SetI1(0x3f800000)));
  return Select(is_zero, Zero(), Mul(p, power));
}

// 2^x for weights that are rounded to bf16. A NaN with low bits 0, as in bf16, stays a NaN.
BH_INLINE F32x16 Exp2ForBf16(F32x16 x) {
  const Mask16 is_zero = Less(x, Set1(kExp2Min));
  const F32x16 t = Add(x, Set1(kExpRoundMagic));
  const F32x16 r = Sub(x, Sub(t, Set1(kExpRoundMagic)));
  F32x16 p = Fma(Set1(kExp2D3), r, Set1(kExp2D2));
  p = Fma(p, r, Set1(kExp2D1));
  p = Fma(p, r, Set1(1.0f));
  const F32x16 power = FromBits(Add(ShiftLeft<23>(BitsOf(t)), BitsOf(p)));
  return Select(is_zero, Zero(), power);
}

}  // namespace bulkhead::BH_ISA
