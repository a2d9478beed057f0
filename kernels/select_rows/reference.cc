#include <algorithm>

#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) {
  for (int64_t i = 0; i < out.rows(); ++i) std::copy_n(x.F32(rows[i]), out.cols(), out.F32(i));
}

}  // namespace bulkhead
