// The kernel of one row's norm, for RmsNorm and NormRope.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// out_i = (x_i * scale) * weight_i, scale = 1 / sqrt(mean(x^2) + epsilon); out may be x.
BH_PER_ISA(void NormRow(const float* x, const float* weight, float epsilon, int64_t size,
                        float* out))

}  // namespace bulkhead
