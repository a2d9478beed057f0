#include "kernels/rms_norm/reference.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {

float SumOfSquaresInOrder(const float* x, int64_t size) {
  float lanes[ordered::kLanes] = {};
  for (int64_t k = 0; k < size; ++k) {
    float& lane = lanes[k % ordered::kLanes];
    lane = std::fma(x[k], x[k], lane);
  }
  return ordered::FoldLanes(lanes);
}

void NormInOrder(const float* x, ConstMatrixView weight, float epsilon, int64_t size, float* out) {
  const float mean = SumOfSquaresInOrder(x, size) / static_cast<float>(size);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < size; ++i) out[i] = x[i] * scale * weight.F32()[i];
}

std::vector<double> NormInDouble(const float* x, ConstMatrixView weight, float epsilon,
                                 int64_t size) {
  std::vector<double> row(x, x + size);
  if (weight.empty()) return row;
  double sum = 0;
  for (const double value : row) sum += value * value;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(size) + epsilon);
  for (int64_t i = 0; i < size; ++i) row[i] *= scale * weight.F32()[i];
  return row;
}

void ReferenceBackend::RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon,
                               MatrixView out) {
  if (x.empty()) return;
  for (int64_t t = 0; t < x.rows(); ++t) {
    if (in_order_) {
      NormInOrder(x.F32(t), weight, epsilon, x.cols(), out.F32(t));
    } else {
      const std::vector<double> row = NormInDouble(x.F32(t), weight, epsilon, x.cols());
      std::copy(row.begin(), row.end(), out.F32(t));
    }
  }
}

}  // namespace bulkhead
