// soft_cap * tanh(x / soft_cap) as the kernels of one instruction set compute it: with
// y = x * (2 / soft_cap) and e = Exp(-|y|), tanh(|x| / soft_cap) = (1 - e) / (1 + e). Its error is
// the error of 1 - e, about 1e-7 of soft_cap.
#pragma once

#include "kernels/simd/exp.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

BH_INLINE F32x16 SoftCap(F32x16 x, float soft_cap) {
  const F32x16 twice = Mul(x, Set1(2.0f / soft_cap));
  const F32x16 minus = Sub(Zero(), twice);
  const F32x16 e = Exp(Min(twice, minus));
  const F32x16 tanh = Div(Sub(Set1(1.0f), e), Add(Set1(1.0f), e));
  return Mul(Set1(soft_cap), Select(Less(twice, Zero()), Sub(Zero(), tanh), tanh));
}

}  // namespace bulkhead::BH_ISA
