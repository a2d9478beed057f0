#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::AddResidual(ConstMatrixView sum, ConstMatrixView bias, float factor,
                                   MatrixView hidden) {
  for (int64_t t = 0; t < hidden.rows(); ++t) {
    const float* sum_row = sum.F32(t);
    float* out = hidden.F32(t);
    for (int64_t i = 0; i < hidden.cols(); ++i) {
      out[i] += factor * (bias.empty() ? sum_row[i] : sum_row[i] + bias.F32()[i]);
    }
  }
}

}  // namespace bulkhead
