#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::AddBias(ConstMatrixView bias, MatrixView x) {
  if (x.empty()) return;
  BH_CHECK(bias.cols() == x.cols());
  ForRows(x, [&](int64_t t) {
    const float* from = bias.F32();
    float* to = x.F32(t);
    for (int64_t i = 0; i < x.cols(); ++i) to[i] += from[i];
  });
}

}  // namespace bulkhead
