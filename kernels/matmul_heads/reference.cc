#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::MatMulHeads(ConstMatrixView x, int64_t x_step,
                                   absl::Span<const Linear> heads, MatrixView out,
                                   int64_t out_step) {
  ReferenceBackend in_f32(device_, in_order_ ? Order::kPromised : Order::kDouble,
                          ActivationDType::kF32);
  for (size_t i = 0; i < heads.size(); ++i) {
    const LinearShape& shape = heads[i].shape;
    const auto head = static_cast<int64_t>(i);
    in_f32.MatMul(x.Cols(head * x_step, shape.cols), heads[i],
                  out.Cols(head * out_step, shape.rows));
  }
}

}  // namespace bulkhead
