#include "kernels/reference/plain_backend.h"

#include <algorithm>

#include "kernels/reference/number_format.h"
#include "kernels/reference/quantized_weight.h"
#include "kernels/reference/sequence_cache.h"

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

int64_t PlainBackend::PackedBytes(const LinearShape& shape) const {
  if (IsQuantized(shape.format)) return QuantizedWeight::Bytes(shape);
  return shape.rows * shape.cols * DTypeBytes(DTypeOf(shape.format));
}

std::unique_ptr<WeightSink> PlainBackend::Pack(const Linear& linear) {
  if (IsQuantized(linear.shape.format)) return NewQuantizedWeightSink(linear);
  return std::make_unique<RowMajorSink>(linear);
}

void PlainBackend::WeightRow(const Linear& linear, int64_t row, float* out) {
  if (IsQuantized(linear.shape.format)) return QuantizedWeight(linear).Row(row, out);
  const DType dtype = DTypeOf(linear.shape.format);
  for (int64_t col = 0; col < linear.shape.cols; ++col) {
    out[col] = LoadNumber(linear.packed, dtype, row * linear.shape.cols + col);
  }
}

int64_t PlainBackend::WorkspaceBytes(const StepLimits&, const HeadLayout&) const { return 0; }

void PlainBackend::SetWorkspace(std::byte*, const StepLimits&, const HeadLayout&) {}

void PlainBackend::Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
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

void PlainBackend::AddBias(ConstMatrixView bias, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.F32(t)[i] += bias.F32()[i];
  }
}

void PlainBackend::AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                            const KvLayerView& kv) {
  const int d = heads.head_dim;
  for (int t = 0; t < index.num_tokens; ++t) {
    const SequenceCache cache(index, index.token_seq[t], kv);
    for (int head = 0; head < heads.num_kv_heads; ++head) {
      const float* key = qkv.F32(t) + int64_t{heads.num_heads + head} * d;
      const float* value = key + int64_t{heads.num_kv_heads} * d;
      cache.Put(head, index.position[t], key, value);
    }
  }
}

void PlainBackend::AddResidual(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden) {
  for (int64_t t = 0; t < hidden.rows(); ++t) {
    const float* sum_row = sum.F32(t);
    float* out = hidden.F32(t);
    for (int64_t i = 0; i < hidden.cols(); ++i) {
      out[i] += bias.empty() ? sum_row[i] : sum_row[i] + bias.F32()[i];
    }
  }
}

void PlainBackend::SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) {
  for (int64_t i = 0; i < out.rows(); ++i) std::copy_n(x.F32(rows[i]), out.cols(), out.F32(i));
}

void PlainBackend::Fill(float value, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) std::fill_n(x.F32(t), x.cols(), value);
}

}  // namespace bulkhead
