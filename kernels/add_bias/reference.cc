#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::AddBias(ConstMatrixView bias, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.F32(t)[i] += bias.F32()[i];
  }
}

}  // namespace bulkhead
