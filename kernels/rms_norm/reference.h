// One row's norm in both orders of the reference backends, for RmsNorm, SumHeadSquares and
// NormRope.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/matrix.h"

namespace bulkhead {

// The sum of squares by fma(x, x, lane).
float SumOfSquaresInOrder(const float* x, int64_t size);
// out_i = (x_i * scale) * weight_i, scale = 1 / sqrt(mean(x^2) + epsilon): squares by fma(x, x,
// lane), then sum / size, + epsilon, square root, reciprocal, each rounded once. out may be x.
void NormInOrder(const float* x, ConstMatrixView weight, float epsilon, int64_t size, float* out);
// Not rounded; x unchanged if there is no weight.
std::vector<double> NormInDouble(const float* x, ConstMatrixView weight, float epsilon,
                                 int64_t size);

}  // namespace bulkhead
