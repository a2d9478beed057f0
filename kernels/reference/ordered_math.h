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
// The same for 2^x.
float Exp2ForBf16(float x);

// soft_cap * tanh(x / soft_cap), by kernels/simd/soft_cap.h; x if soft_cap is 0.
float SoftCap(float x, float soft_cap);

// Rounds to bf16, with denormals as 0.
float RoundFlushed(float x);

// The chain of ActivationDType::kBf16 over x[k] * w[k], k in [begin, end), for numbers that are
// exact in bf16.
float PairChain(const float* x, const float* w, int64_t begin, int64_t end);

// The chain of ActivationDType::kBf16Amx over x[k] * w[k], k in [begin, end), for numbers that are
// exact in bf16, in 32s from `begin` on.
float TileChain(const float* x, const float* w, int64_t begin, int64_t end);

}  // namespace bulkhead::ordered
