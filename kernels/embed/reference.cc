#include <algorithm>

#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
                             MatrixView out) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    const int64_t row = tokens[t] - first_row;
    const bool here = row >= 0 && row < table.shape.rows;
    float* out_row = out.F32(t);
    std::fill_n(out_row, out.cols(), 0.0f);
    if (!here) continue;
    WeightRow(table, row, out_row);
    for (int64_t i = 0; i < out.cols(); ++i) out_row[i] += 0.0f;
  }
}

}  // namespace bulkhead
