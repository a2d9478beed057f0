// In order: mean and squares in 16 lanes, each quotient, root and product rounded once:
//   mean = sum(x) / size      c_i = x_i - mean      scale = 1 / sqrt(sum(c^2) / size + epsilon)
//   out_i = c_i * scale * weight_i (+ bias_i)
#include <cmath>

#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {
namespace {

void NormInOrder(const float* x, ConstMatrixView weight, ConstMatrixView bias, float epsilon,
                 int64_t size, float* out) {
  float sums[ordered::kLanes] = {};
  for (int64_t k = 0; k < size; ++k) sums[k % ordered::kLanes] += x[k];
  const float mean = ordered::FoldLanes(sums) / static_cast<float>(size);
  float squares[ordered::kLanes] = {};
  for (int64_t k = 0; k < size; ++k) {
    float& lane = squares[k % ordered::kLanes];
    lane = std::fma(x[k] - mean, x[k] - mean, lane);
  }
  const float variance = ordered::FoldLanes(squares) / static_cast<float>(size);
  const float scale = 1.0f / std::sqrt(variance + epsilon);
  for (int64_t i = 0; i < size; ++i) {
    const float normed = (x[i] - mean) * scale * weight.F32()[i];
    out[i] = bias.empty() ? normed : normed + bias.F32()[i];
  }
}

void NormInDouble(const float* x, ConstMatrixView weight, ConstMatrixView bias, float epsilon,
                  int64_t size, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(size);
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + epsilon);
  for (int64_t i = 0; i < size; ++i) {
    const double normed = (x[i] - mean) * scale * weight.F32()[i];
    out[i] = static_cast<float>(bias.empty() ? normed : normed + bias.F32()[i]);
  }
}

}  // namespace

void ReferenceBackend::LayerNorm(ConstMatrixView x, ConstMatrixView weight, ConstMatrixView bias,
                                 float epsilon, MatrixView out) {
  const auto norm = in_order_ ? NormInOrder : NormInDouble;
  for (int64_t t = 0; t < x.rows(); ++t) {
    norm(x.F32(t), weight, bias, epsilon, x.cols(), out.F32(t));
  }
}

}  // namespace bulkhead
