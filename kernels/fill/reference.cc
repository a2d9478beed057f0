#include <algorithm>

#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::Fill(float value, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) std::fill_n(x.F32(t), x.cols(), value);
}

}  // namespace bulkhead
