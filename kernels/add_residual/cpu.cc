#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::AddResidual(ConstMatrixView sum, ConstMatrixView bias, float factor,
                             MatrixView hidden) {
  if (hidden.empty()) return;
  BH_CHECK(sum.rows() == hidden.rows() && sum.cols() == hidden.cols());
  BH_CHECK(bias.empty() || bias.cols() == hidden.cols());
  ForRows(hidden, [&](int64_t t) {
    const float* from = sum.F32(t);
    float* to = hidden.F32(t);
    if (bias.empty()) {
      for (int64_t i = 0; i < hidden.cols(); ++i) to[i] += factor * from[i];
    } else {
      const float* shift = bias.F32();
      for (int64_t i = 0; i < hidden.cols(); ++i) to[i] += factor * (from[i] + shift[i]);
    }
  });
}

}  // namespace bulkhead
