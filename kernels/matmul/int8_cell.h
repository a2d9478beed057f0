// Completes a cell's sum of codes times inputs, however it was computed. Compiled per instruction
// set.
#pragma once

#include "kernels/matmul/quantized_codes.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// Added to the sum of a cell's (q - taken_off) x to get that of (q - z) x, if all zeros are equal
// (all formats but int4).
template <PanelFormat kFormat>
BH_INLINE I32x16 FreshSum(int taken_off, int32_t input_sum) {
  if constexpr (kFormat == PanelFormat::kInt4) return SetI1(0);
  return SetI1((taken_off - kZeroOf<kFormat>)*input_sum);
}

// sum - zero * input_sum, in f32: integers below 2^24 are exact, and this is cheaper than integer
// products.
template <PanelFormat kFormat>
BH_INLINE F32x16 FinishSum(I32x16 sum, F32x16 zero, int32_t input_sum) {
  if constexpr (kFormat != PanelFormat::kInt4) return ToF32(sum);
  return Fnma(zero, ToF32(SetI1(input_sum)), ToF32(sum));
}

}  // namespace bulkhead::BH_ISA
