#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {

void CpuBackend::RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) {
  if (x.empty()) return;
  BH_CHECK(weight.cols() == x.cols() && out.cols() == x.cols() && out.rows() == x.rows());
  const auto norm = BH_OF_ISA(isa_, NormRow);
  pool_->ParallelForWork(x.rows(), x.rows() * x.cols(), [&](int, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      norm(x.F32(t), weight.F32(), epsilon, x.cols(), out.F32(t));
    }
  });
}

}  // namespace bulkhead
