#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

// `bias` may be null; out may be x.
BH_PER_ISA(void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon,
                             int64_t size, float* out))

void CpuBackend::LayerNorm(ConstMatrixView x, ConstMatrixView weight, ConstMatrixView bias,
                           float epsilon, MatrixView out) {
  if (x.empty()) return;
  BH_CHECK(weight.cols() == x.cols() && out.cols() == x.cols() && out.rows() == x.rows());
  BH_CHECK(bias.empty() || bias.cols() == x.cols());
  const auto norm = BH_OF_ISA(isa_, LayerNormRow);
  ForRows(out, [&](int64_t t) {
    norm(x.F32(t), weight.F32(), bias.empty() ? nullptr : bias.F32(), epsilon, x.cols(),
         out.F32(t));
  });
}

}  // namespace bulkhead
