// MatrixView: the only tensor type. Activations are [tokens, features], weights [outputs, inputs].
// A view is non-owning; slices are views. Letters: L layers, D model width, H query heads, K KV
// heads, d head width, F MLP width, V vocabulary, T tokens in a step, S sequences in a step.
// Lower-case h, k, f, v are this rank's share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace bulkhead {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32 };

constexpr int64_t DTypeBytes(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? 2 : 4;
}

// "float32", "bfloat16", "float16", "int32".
absl::string_view DTypeName(DType dtype);

// float32 f32 fp32, bfloat16 bf16, float16 f16 fp16 half. INVALID_ARGUMENT otherwise.
absl::StatusOr<DType> ParseDType(absl::string_view name);

template <typename Byte>
class BasicMatrixView {
 public:
  BasicMatrixView() = default;
  // `row_stride` in elements.
  BasicMatrixView(Byte* data, DType dtype, int64_t rows, int64_t cols, int64_t row_stride)
      : data_(data), dtype_(dtype), rows_(rows), cols_(cols), row_stride_(row_stride) {}
  BasicMatrixView(Byte* data, DType dtype, int64_t rows, int64_t cols)
      : BasicMatrixView(data, dtype, rows, cols, cols) {}
  template <typename Other>                             // a mutable view converts to a const one
  BasicMatrixView(const BasicMatrixView<Other>& other)  // NOLINT(google-explicit-constructor)
      : BasicMatrixView(other.data(), other.dtype(), other.rows(), other.cols(),
                        other.row_stride()) {}

  Byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t row_stride() const { return row_stride_; }
  bool empty() const { return rows_ == 0 || cols_ == 0; }

  Byte* RowBytes(int64_t row) const { return data_ + row * row_stride_ * DTypeBytes(dtype_); }
  auto* F32(int64_t row = 0) const {
    using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
    BH_CHECK(dtype_ == DType::kF32);
    return reinterpret_cast<Float*>(RowBytes(row));
  }
  BasicMatrixView Rows(int64_t begin, int64_t count) const {
    BH_CHECK(begin >= 0 && count >= 0 && begin + count <= rows_);
    return BasicMatrixView(RowBytes(begin), dtype_, count, cols_, row_stride_);
  }
  BasicMatrixView Cols(int64_t begin, int64_t count) const {
    BH_CHECK(begin >= 0 && count >= 0 && begin + count <= cols_);
    return BasicMatrixView(data_ + begin * DTypeBytes(dtype_), dtype_, rows_, count, row_stride_);
  }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t row_stride_ = 0;
};

using MatrixView = BasicMatrixView<std::byte>;
using ConstMatrixView = BasicMatrixView<const std::byte>;

}  // namespace bulkhead
