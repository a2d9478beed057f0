// Single-row norms for RmsNorm, SumHeadSquares and NormRope.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// out_i = (x_i * scale) * weight_i, scale = 1 / sqrt(mean(x^2) + epsilon); out may be x. weight
// null: all ones.
BH_PER_ISA(void NormRow(const float* x, const float* weight, float epsilon, int64_t size,
                        float* out))
// Sum of squares in 16 lanes.
BH_PER_ISA(float SumOfSquares(const float* x, int64_t size))
// The same as NormRow with a given scale.
BH_PER_ISA(void ScaleRow(const float* x, float scale, const float* weight, int64_t size,
                         float* out))

}  // namespace bulkhead
