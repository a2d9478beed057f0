#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) {
  if (out.empty()) return;
  BH_CHECK(x.cols() == out.cols());
  ForRows(out, [&](int64_t t) {
    BH_CHECK(rows[t] >= 0 && rows[t] < x.rows());
    std::copy_n(x.F32(rows[t]), out.cols(), out.F32(t));
  });
}

}  // namespace bulkhead
