#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/packing/packing.h"

namespace bulkhead {

void CpuBackend::Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
                       MatrixView out) {
  if (out.empty()) return;
  BH_CHECK(out.cols() == table.shape.cols);
  pool_->ParallelForWork(out.rows(), out.rows() * out.cols(), [&](int, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = tokens[t] - first_row;
      if (row >= 0 && row < table.shape.rows) {
        UnpackRow(table, row, out.F32(t));
      } else {
        std::fill_n(out.F32(t), out.cols(), 0.0f);
      }
    }
  });
}

}  // namespace bulkhead
