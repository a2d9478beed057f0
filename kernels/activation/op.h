// Single-row kernels for GatedActivation and Activate.
#pragma once

#include <stdint.h>

#include "base/activation.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// 2 sqrt(2 / pi), and that times 0.044715.
inline constexpr float kGeluLinear = 1.5957691216057308f;
inline constexpr float kGeluCubic = 0.07135481627159984f;

// out_i = activation(x_i) * up_i, or activation(x_i) if `up` is null; out may be x.
BH_PER_ISA(void ActivateRow(Activation activation, const float* x, const float* up, int64_t size,
                            float* out))

// ClampedSwiglu for one row: out [size], gate_up [2 size].
BH_PER_ISA(void ClampedSwigluRow(float alpha, float limit, const float* gate_up, int64_t size,
                                 float* out))

}  // namespace bulkhead
