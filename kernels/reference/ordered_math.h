// The fixed orders of f32 sums, and our own exp, as plain code.
#pragma once

#include <cstdint>

namespace bulkhead::ordered {

// 16 virtual lanes: element k of a sum belongs to lane k mod 16, each lane adds its elements
// ascending from +0, and the lanes are folded in halves: lane i += lane i + 8, then + 4, + 2, + 1.
inline constexpr int kLanes = 16;
float FoldLanes(const float lanes[kLanes]);

// exp of x <= 0, by kernels/simd/exp_constants.h.
float Exp(float x);

// soft_cap * tanh(x / soft_cap), by kernels/simd/soft_cap.h; x where soft_cap is 0.
float SoftCap(float x, float soft_cap);

}  // namespace bulkhead::ordered
