#include "kernels/packing/packing.h"

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/packing/quantized_packing.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

constexpr int64_t kPairs = kPanelColumns / 2;  // of columns per k
// Inputs of a panel that are written together: the block stays in the L1 cache while rows pass.
constexpr int64_t kBlock = 256;

// Null where nothing changes.
ConvertFunction ConversionOf(DType from, DType to, const ConvertKernels& convert) {
  if (from == to) return nullptr;
  if (to == DType::kF32) return from == DType::kBF16 ? convert.bf16_to_f32 : convert.f16_to_f32;
  if (to == DType::kBF16) return from == DType::kF32 ? convert.f32_to_bf16 : convert.f16_to_bf16;
  return from == DType::kF32 ? convert.f32_to_f16 : convert.bf16_to_f16;
}

// `count` inputs of one row, read in the weight's own format.
template <typename Word>
class RowReader {
 public:
  RowReader(ConstMatrixView rows, ConvertFunction convert) : rows_(rows), convert_(convert) {}

  const Word* Read(int64_t row, int64_t k, int64_t count) {
    const std::byte* from = rows_.RowBytes(row) + k * DTypeBytes(rows_.dtype());
    if (convert_ == nullptr) return reinterpret_cast<const Word*>(from);
    convert_(from, count, converted_);
    return converted_;
  }

 private:
  const ConstMatrixView rows_;
  const ConvertFunction convert_;
  Word converted_[kBlock];
};

class PanelSink final : public WeightSink {
 public:
  PanelSink(const Linear& linear, const ConvertKernels& convert, const PackingKernels& packing)
      : linear_(linear),
        dtype_(DTypeOf(linear.shape.format)),
        convert_(convert),
        packing_(packing) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= shape.rows && rows.cols() == shape.cols);
    BH_CHECK(rows.dtype() != DType::kI32);
    if (rows.empty()) return;
    const int64_t row_end = row_begin + rows.rows();
    for (int64_t panel = row_begin / kPanelColumns; panel * kPanelColumns < row_end; ++panel) {
      const int64_t first = std::max(row_begin, panel * kPanelColumns);
      const int64_t last = std::min(row_end, (panel + 1) * kPanelColumns);
      const ConstMatrixView part = rows.Rows(first - row_begin, last - first);
      for (int64_t k = 0; k < shape.cols; k += kBlock) {
        const int64_t count = std::min(kBlock, shape.cols - k);
        if (part.rows() == kPanelColumns) {
          PutWholeBlock(panel, part, k, count);
        } else {
          PutBlock(panel, first % kPanelColumns, part, k, count);
        }
      }
    }
  }

  void PutQuantizedRows(int64_t, const QuantizedRows&) override { BH_CHECK(false); }
  void PutGroupIndex(absl::Span<const int32_t>) override { BH_CHECK(false); }

 private:
  std::byte* BlockAt(int64_t panel, int64_t k) const {
    return linear_.packed + (panel * linear_.shape.cols + k) * kPanelColumns * DTypeBytes(dtype_);
  }

  // All rows of one panel; inputs [k, k + count).
  void PutWholeBlock(int64_t panel, ConstMatrixView rows, int64_t k, int64_t count) {
    const ConvertFunction convert = ConversionOf(rows.dtype(), dtype_, convert_);
    alignas(64) std::byte converted[kPanelColumns][kBlock * sizeof(float)];
    const void* row[kPanelColumns];
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const std::byte* from = rows.RowBytes(i) + k * DTypeBytes(rows.dtype());
      if (convert != nullptr) convert(from, count, converted[i]);
      row[i] = convert != nullptr ? converted[i] : from;
    }
    uint32_t* out = reinterpret_cast<uint32_t*>(BlockAt(panel, k));
    if (dtype_ == DType::kF32) {
      packing_.interleave(row, count, kPanelColumns, out);
      packing_.interleave(row + kPairs, count, kPanelColumns, out + kPairs);
    } else if (dtype_ == DType::kBF16) {
      packing_.pair_halves(row, row + kPairs, count, out);
    } else {
      const void* even[kPairs];
      const void* odd[kPairs];
      for (int64_t i = 0; i < kPairs; ++i) {
        even[i] = row[2 * i];
        odd[i] = row[2 * i + 1];
      }
      packing_.pair_halves(even, odd, count, out);
    }
  }

  // Rows that are columns [column, column + rows.rows()) of one panel; inputs [k, k + count).
  void PutBlock(int64_t panel, int64_t column, ConstMatrixView rows, int64_t k, int64_t count) {
    std::byte* block = BlockAt(panel, k);
    if (dtype_ == DType::kF32) {
      PutPairs<uint32_t, uint64_t>(column, rows, k, count, {2, 1}, block);
    } else if (dtype_ == DType::kF16) {
      PutPairs<uint16_t, uint32_t>(column, rows, k, count, {2, 1}, block);
    } else {
      PutPairs<uint16_t, uint32_t>(column, rows, k, count, {1, kPairs}, block);
    }
  }

  // Word i of a k holds the columns i * step and i * step + apart.
  struct Pairing {
    int64_t step;
    int64_t apart;
  };

  // Words are written where both columns are ours; a half alone is written alone, for the other may
  // be another thread's.
  template <typename Half, typename Word>
  void PutPairs(int64_t column, ConstMatrixView rows, int64_t k, int64_t count, Pairing pairing,
                std::byte* block) {
    const ConvertFunction convert = ConversionOf(rows.dtype(), dtype_, convert_);
    RowReader<Half> low_reader(rows, convert);
    RowReader<Half> high_reader(rows, convert);
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      const int64_t low_row = pair * pairing.step - column;
      const int64_t high_row = low_row + pairing.apart;
      const bool has_low = low_row >= 0 && low_row < rows.rows();
      const bool has_high = high_row >= 0 && high_row < rows.rows();
      const Half* low = has_low ? low_reader.Read(low_row, k, count) : nullptr;
      const Half* high = has_high ? high_reader.Read(high_row, k, count) : nullptr;
      if (has_low && has_high) {
        Word* to = reinterpret_cast<Word*>(block) + pair;
        for (int64_t i = 0; i < count; ++i) {
          to[i * kPairs] = low[i] | Word{high[i]} << (8 * sizeof(Half));
        }
      } else if (has_low || has_high) {
        const Half* from = has_low ? low : high;
        Half* to = reinterpret_cast<Half*>(block) + 2 * pair + (has_high ? 1 : 0);
        for (int64_t i = 0; i < count; ++i) to[i * kPanelColumns] = from[i];
      }
    }
  }

  const Linear linear_;
  const DType dtype_;
  const ConvertKernels& convert_;
  const PackingKernels& packing_;
};

}  // namespace

PanelFormat PanelFormatOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return PanelFormat::kF32;
    case WeightFormat::kBF16:
      return PanelFormat::kBf16;
    case WeightFormat::kF16:
      return PanelFormat::kF16;
    case WeightFormat::kInt8:
      return PanelFormat::kInt8;
    case WeightFormat::kInt4:
      return PanelFormat::kInt4;
    case WeightFormat::kFp4:
      return PanelFormat::kFp4;
    case WeightFormat::kFp8:
      break;
  }
  return PanelFormat::kFp8;
}

int64_t PanelBytes(const LinearShape& shape) {
  if (IsQuantized(shape.format)) return QuantizedPanelBytes(shape);
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  return panels * kPanelColumns * shape.cols * DTypeBytes(DTypeOf(shape.format));
}

std::unique_ptr<WeightSink> NewPanelSink(const Linear& linear, const ConvertKernels& convert,
                                         const PackingKernels& packing) {
  BH_CHECK(linear.packed != nullptr || PanelBytes(linear.shape) == 0);
  if (IsQuantized(linear.shape.format)) return NewQuantizedPanelSink(linear, convert, packing);
  return std::make_unique<PanelSink>(linear, convert, packing);
}

void UnpackRow(const Linear& linear, int64_t row, float* out) {
  if (IsQuantized(linear.shape.format)) return UnpackQuantizedRow(linear, row, out);
  const DType dtype = DTypeOf(linear.shape.format);
  const int64_t inputs = linear.shape.cols;
  const int64_t column = row % kPanelColumns;
  const std::byte* panel =
      linear.packed + row / kPanelColumns * kPanelColumns * inputs * DTypeBytes(dtype);
  if (dtype == DType::kF32) {
    const float* from = reinterpret_cast<const float*>(panel) + column;
    for (int64_t k = 0; k < inputs; ++k) out[k] = from[k * kPanelColumns] + 0.0f;
  } else if (dtype == DType::kF16) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(panel) + column;
    for (int64_t k = 0; k < inputs; ++k) out[k] = F32OfF16(from[k * kPanelColumns]) + 0.0f;
  } else {
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(panel) + column % kPairs * 2 + (column >= kPairs ? 1 : 0);
    for (int64_t k = 0; k < inputs; ++k) out[k] = F32OfBf16(from[k * kPanelColumns]) + 0.0f;
  }
}

}  // namespace bulkhead
