#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

BH_PER_ISA(void ScaleAndCapRow(float scale, float soft_cap, int64_t size, float* x))

void CpuBackend::ScaleAndCap(float scale, float soft_cap, MatrixView x) {
  if (x.empty()) return;
  const auto scale_row = BH_OF_ISA(isa_, ScaleAndCapRow);
  ForRows(x, [&](int64_t t) { scale_row(scale, soft_cap, x.cols(), x.F32(t)); });
}

void CpuBackend::ScaleBy(const float* factor, MatrixView x) {
  if (!x.empty()) ScaleAndCap(*factor, 0.0F, x);
}

}  // namespace bulkhead
