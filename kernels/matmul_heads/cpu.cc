#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/matmul/op.h"

namespace bulkhead {
namespace {

// Rows that a thread multiplies with a panel at a time.
constexpr int64_t kRowsAtOnce = 4 * kGroupRows;

}  // namespace

// Threads share the panels of all heads, for some rows each: one head has few panels.
void CpuBackend::MatMulHeads(ConstMatrixView x, int64_t x_step, absl::Span<const Linear> heads,
                             MatrixView out, int64_t out_step) {
  if (heads.empty() || x.empty() || out.empty()) return;
  const LinearShape& shape = heads[0].shape;
  const auto num_heads = static_cast<int64_t>(heads.size());
  BH_CHECK(x.rows() == out.rows() && shape.num_slices() == 1);
  BH_CHECK(shape.cols <= x_step && (num_heads - 1) * x_step + shape.cols <= x.cols());
  BH_CHECK(shape.rows <= out_step && (num_heads - 1) * out_step + shape.rows <= out.cols());
  BH_CHECK(mat_mul_scratch_.floats != nullptr && x.rows() <= mat_mul_scratch_.max_rows);
  const int64_t rows = x.rows();
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  const bool is_few = rows <= BH_OF_ISA(isa_, kMaxFewRows);
  const auto multiply = is_few ? BH_OF_ISA(isa_, MultiplyFew) : BH_OF_ISA(isa_, MultiplyMany);
  const int64_t units = CeilDiv(rows, kRowsAtOnce) * num_heads * panels;
  const auto work = [&](int thread, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end;) {
      const int64_t panel = unit % panels;
      const int64_t count = std::min(panels - panel, end - unit);
      const int64_t head = unit / panels % num_heads;
      const int64_t row = unit / panels / num_heads * kRowsAtOnce;
      unit += count;
      QuantizedPanels quantized{};
      const Product product = ProductOf(x.Cols(head * x_step, shape.cols), heads[head],
                                        out.Cols(head * out_step, shape.rows), quantized);
      multiply(product, {panel, panel + count, row, std::min(row + kRowsAtOnce, rows),
                         mat_mul_scratch_.Of(thread), mat_mul_scratch_.thread_floats});
    }
  };
  pool_->ParallelForWork(units, rows * num_heads * shape.rows * shape.cols, work);
}

}  // namespace bulkhead
