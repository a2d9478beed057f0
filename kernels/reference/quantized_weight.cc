#include "kernels/reference/quantized_weight.h"

#include <algorithm>
#include <bit>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/reference/number_format.h"

namespace bulkhead {
namespace {

constexpr int64_t kAlignBytes = 64;

int64_t ScalingsOf(const LinearShape& shape) {
  return shape.groups.indexed > 0 ? NumGroups(shape) : static_cast<int64_t>(CellsOf(shape).size());
}

class Sink final : public WeightSink {
 public:
  explicit Sink(const Linear& linear) : weight_(linear) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const LinearShape& shape = weight_.shape();
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= shape.rows && rows.cols() == shape.cols);
    BH_CHECK(shape.groups.indexed == 0);
    std::vector<float> values(shape.cols);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      for (int64_t col = 0; col < shape.cols; ++col) {
        values[col] = LoadNumber(rows.RowBytes(row), rows.dtype(), col);
      }
      const int64_t to = row_begin + row;
      for (size_t i = 0; i < weight_.cells().size(); ++i) {
        const WeightCell& cell = weight_.cells()[i];
        const WeightScaling scaling = QuantizeWeights(
            absl::MakeConstSpan(values).subspan(cell.begin, cell.size()), shape.format,
            kPlainWeightLoops, {weight_.codes(to) + cell.begin, static_cast<size_t>(cell.size())});
        weight_.scales(to)[i] = scaling.scale;
        weight_.zeros(to)[i] = scaling.zero;
      }
    }
  }

  void PutQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override {
    const LinearShape& shape = weight_.shape();
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows <= shape.rows);
    const int64_t groups = NumGroups(shape);
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t to = row_begin + row;
      PutCodes(rows.codes + row * shape.cols, weight_.codes(to));
      const auto put = [&](int64_t at, int64_t group) {
        weight_.scales(to)[at] = ScaleBits(rows, row, row * groups + group);
        weight_.zeros(to)[at] = is_fp4()                     ? kFp4Zero
                                : rows.f32_scales != nullptr ? uint8_t{0}
                                                             : rows.zeros[row * groups + group];
      };
      if (shape.groups.indexed > 0) {
        for (int64_t group = 0; group < groups; ++group) put(group, group);
      } else {
        for (size_t i = 0; i < weight_.cells().size(); ++i) put(i, weight_.cells()[i].group);
      }
    }
  }

  void PutGroupIndex(absl::Span<const int32_t> group_of_input) override {
    BH_CHECK(weight_.index() != nullptr &&
             static_cast<int64_t>(group_of_input.size()) == weight_.shape().cols);
    std::copy(group_of_input.begin(), group_of_input.end(), weight_.index());
  }

 private:
  static uint32_t ScaleBits(const QuantizedRows& rows, int64_t row, int64_t at) {
    if (rows.f32_scales != nullptr) return std::bit_cast<uint32_t>(rows.f32_scales[at]);
    return rows.factors != nullptr ? Fp4ScaleBits(rows.scales[at], rows.factors[row])
                                   : rows.scales[at];
  }
  bool is_fp4() const { return IsFp4(weight_.shape().format); }
  // One row; for fp4 the steps.
  void PutCodes(const uint8_t* from, uint8_t* to) const {
    for (int64_t col = 0; col < weight_.shape().cols; ++col) {
      to[col] = is_fp4() ? kFp4Steps[from[col]] : from[col];
    }
  }

  const QuantizedWeight weight_;
};

}  // namespace

QuantizedWeight::QuantizedWeight(const Linear& linear)
    : linear_(linear), cells_(CellsOf(linear.shape)), scalings_(ScalingsOf(linear.shape)) {
  const LinearShape& shape = linear_.shape;
  std::byte* at = linear_.packed;
  codes_ = reinterpret_cast<uint8_t*>(at);
  at += RoundUp(shape.rows * shape.cols, kAlignBytes);
  scales_ = reinterpret_cast<uint32_t*>(at);
  at += RoundUp(shape.rows * scalings_ * 4, kAlignBytes);
  zeros_ = reinterpret_cast<uint8_t*>(at);
  at += RoundUp(shape.rows * scalings_, kAlignBytes);
  index_ = shape.groups.indexed > 0 ? reinterpret_cast<int32_t*>(at) : nullptr;
}

int64_t QuantizedWeight::Bytes(const LinearShape& shape) {
  const int64_t scalings = ScalingsOf(shape);
  return RoundUp(shape.rows * shape.cols, kAlignBytes) +
         RoundUp(shape.rows * scalings * 4, kAlignBytes) +
         RoundUp(shape.rows * scalings, kAlignBytes) +
         (shape.groups.indexed > 0 ? 4 * shape.cols : 0);
}

void QuantizedWeight::Row(int64_t row, float* out) const {
  if (index_ != nullptr) {
    for (int64_t col = 0; col < shape().cols; ++col) {
      out[col] = DequantizeWeight(codes(row)[col], ScalingOf(row, index_[col]));
    }
    return;
  }
  for (size_t i = 0; i < cells_.size(); ++i) {
    for (int64_t col = cells_[i].begin; col < cells_[i].end; ++col) {
      out[col] = DequantizeWeight(codes(row)[col], ScalingOf(row, static_cast<int64_t>(i)));
    }
  }
}

std::unique_ptr<WeightSink> NewQuantizedWeightSink(const Linear& linear) {
  return std::make_unique<Sink>(linear);
}

}  // namespace bulkhead
