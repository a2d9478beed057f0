#include "kernels/reference/reference_backend.h"

#include "kernels/reference/number_format.h"
#include "kernels/reference/quantized_weight.h"

namespace bulkhead {
namespace {

class RowMajorSink final : public WeightSink {
 public:
  explicit RowMajorSink(const Linear& linear)
      : dtype_(DTypeOf(linear.shape.format)),
        rows_(linear.shape.rows),
        cols_(linear.shape.cols),
        packed_(linear.packed) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= rows_ && rows.cols() == cols_);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        const float value = LoadNumber(rows.RowBytes(row), rows.dtype(), col);
        StoreNumber(value, packed_, dtype_, (row_begin + row) * cols_ + col);
      }
    }
  }

  void PutQuantizedRows(int64_t, const QuantizedRows&) override { BH_CHECK(false); }
  void PutGroupIndex(absl::Span<const int32_t>) override { BH_CHECK(false); }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  std::byte* packed_;
};

}  // namespace

int64_t ReferenceBackend::PackedBytes(const LinearShape& shape) const {
  if (IsQuantized(shape.format)) return QuantizedWeight::Bytes(shape);
  return shape.rows * shape.cols * DTypeBytes(DTypeOf(shape.format));
}

std::unique_ptr<WeightSink> ReferenceBackend::Pack(const Linear& linear) {
  if (IsQuantized(linear.shape.format)) return NewQuantizedWeightSink(linear);
  return std::make_unique<RowMajorSink>(linear);
}

void ReferenceBackend::WeightRow(const Linear& linear, int64_t row, float* out) {
  if (IsQuantized(linear.shape.format)) return QuantizedWeight(linear).Row(row, out);
  const DType dtype = DTypeOf(linear.shape.format);
  for (int64_t col = 0; col < linear.shape.cols; ++col) {
    out[col] = LoadNumber(linear.packed, dtype, row * linear.shape.cols + col);
  }
}

std::unique_ptr<Backend> NewReferenceBackend(Device& device) {
  return std::make_unique<ReferenceBackend>(device, ReferenceBackend::Order::kDouble,
                                            ActivationDType::kF32);
}

std::unique_ptr<Backend> NewOrderedBackend(Device& device) {
  return NewOrderedBackend(device, ActivationDType::kF32);
}

std::unique_ptr<Backend> NewOrderedBackend(Device& device, ActivationDType activation,
                                           AttentionDType attention) {
  return std::make_unique<ReferenceBackend>(device, ReferenceBackend::Order::kPromised, activation,
                                            attention);
}

}  // namespace bulkhead
