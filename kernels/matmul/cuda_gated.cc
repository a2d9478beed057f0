// MatMulGated of the CUDA backend.
#include <optional>

#include "base/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/cuda.h"

namespace bulkhead {
namespace {

// Gates and ups in bf16, in half of the memory of f32 ones. None for weights with more bits than
// bf16, or if GatedActivation cannot read such rows.
std::optional<MatrixView> InBf16(const Linear& weight, MatrixView gate_up) {
  const WeightFormat format = weight.shape.format;
  if (format == WeightFormat::kF16 || format == WeightFormat::kF32) return std::nullopt;
  const MatrixView in_bf16(gate_up.data(), DType::kBF16, gate_up.rows(), gate_up.cols(),
                           gate_up.row_stride());
  return cuda::IsVec8(in_bf16.Cols(0, in_bf16.cols() / 2)) ? std::optional(in_bf16) : std::nullopt;
}

}  // namespace

absl::Status CudaBackend::WarmUpMatMulGated(ConstMatrixView x, const Linear& weight,
                                            MatrixView gate_up) {
  BH_RETURN_IF_ERROR(WarmUpMatMul(x, weight, gate_up));
  const std::optional<MatrixView> in_bf16 = InBf16(weight, gate_up);
  return in_bf16.has_value() ? products_->WarmUp(x, weight, *in_bf16) : absl::OkStatus();
}

void CudaBackend::MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                              MatrixView gate_up, MatrixView out) {
  const std::optional<MatrixView> in_bf16 = InBf16(weight, gate_up);
  const bool writes = out.dtype() == DType::kF32 ? cuda::IsVec4(out) : cuda::IsVec8(out);
  if (!in_bf16.has_value() || !writes || !products_->MatMulInBf16(x, weight, *in_bf16)) {
    return Backend::MatMulGated(activation, x, weight, gate_up, out);
  }
  GatedActivation(activation, *in_bf16, out);
}

}  // namespace bulkhead
