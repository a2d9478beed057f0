#include <algorithm>

#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::Fill(float value, MatrixView x) {
  if (x.empty()) return;
  ForRows(x, [&](int64_t t) { std::fill_n(x.F32(t), x.cols(), value); });
}

}  // namespace bulkhead
