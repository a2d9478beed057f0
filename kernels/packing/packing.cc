#include "kernels/packing/packing.h"

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/packing/quantized_packing.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

constexpr int64_t kPairs = kPanelColumns / 2;  // of columns, per k
// Inputs of a panel that are written together: the block stays in the L1 cache while rows pass.
constexpr int64_t kBlock = 256;

// Null if nothing changes.
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
      for (int slice = 0; slice < shape.num_slices(); ++slice) {
        const int64_t end = shape.k_borders[slice + 1];
        for (int64_t k = shape.k_borders[slice]; k < end; k += kBlock) {
          std::byte* const block = BlockAt(panel, slice, k);
          const int64_t count = std::min(kBlock, end - k);
          if (part.rows() == kPanelColumns) {
            PutWholeBlock(part, k, count, block);
          } else {
            PutBlock(first % kPanelColumns, part, k, count, block);
          }
        }
      }
    }
  }

  void PutQuantizedRows(int64_t, const QuantizedRows&) override { BH_CHECK(false); }
  void PutGroupIndex(absl::Span<const int32_t>) override { BH_CHECK(false); }

 private:
  std::byte* BlockAt(int64_t panel, int slice, int64_t k) const {
    const LinearShape& shape = linear_.shape;
    if (dtype_ != DType::kBF16) {
      return linear_.packed + (panel * shape.cols + k) * kPanelColumns * DTypeBytes(dtype_);
    }
    const int64_t* const borders = shape.k_borders.data();
    const int64_t pairs = panel * PairsBefore(borders, shape.num_slices()) +
                          PairsBefore(borders, slice) + (k - borders[slice]) / 2;
    return linear_.packed + pairs * kPairBytes;
  }

  // All rows of one panel; inputs [k, k + count).
  void PutWholeBlock(ConstMatrixView rows, int64_t k, int64_t count, std::byte* block) {
    const ConvertFunction convert = ConversionOf(rows.dtype(), dtype_, convert_);
    alignas(64) std::byte converted[kPanelColumns][kBlock * sizeof(float)];
    const void* row[kPanelColumns];
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const std::byte* from = rows.RowBytes(i) + k * DTypeBytes(rows.dtype());
      if (convert != nullptr) convert(from, count, converted[i]);
      row[i] = convert != nullptr ? converted[i] : from;
    }
    uint32_t* const out = reinterpret_cast<uint32_t*>(block);
    if (dtype_ != DType::kF16) {
      const int64_t words = dtype_ == DType::kBF16 ? count / 2 : count;
      packing_.interleave(row, words, kPanelColumns, out);
      packing_.interleave(row + kPairs, words, kPanelColumns, out + kPairs);
      for (int64_t i = 0; i < kPanelColumns && dtype_ == DType::kBF16 && count % 2 != 0; ++i) {
        out[words * kPanelColumns + i] = static_cast<const uint16_t*>(row[i])[count - 1];
      }
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
  void PutBlock(int64_t column, ConstMatrixView rows, int64_t k, int64_t count, std::byte* block) {
    if (dtype_ == DType::kF32) return PutColumns<uint32_t, 1>(column, rows, k, count, block);
    if (dtype_ == DType::kBF16) return PutColumns<uint16_t, 2>(column, rows, k, count, block);
    PutPairs(column, rows, k, count, block);
  }

  // 32-bit words of kNumbers numbers each.
  template <typename Number, int kNumbers>
  void PutColumns(int64_t column, ConstMatrixView rows, int64_t k, int64_t count,
                  std::byte* block) {
    RowReader<Number> reader(rows, ConversionOf(rows.dtype(), dtype_, convert_));
    for (int64_t r = 0; r < rows.rows(); ++r) {
      const Number* const from = reader.Read(r, k, count);
      uint32_t* const to = reinterpret_cast<uint32_t*>(block) + column + r;
      for (int64_t i = 0; i < count; i += kNumbers) {
        uint32_t word = from[i];
        if (kNumbers == 2 && i + 1 < count) word |= static_cast<uint32_t>(from[i + 1]) << 16;
        to[i / kNumbers * kPanelColumns] = word;
      }
    }
  }

  // For f16, whose words hold two columns: written together if both are ours; otherwise only our
  // half, as the other may be another thread's.
  void PutPairs(int64_t column, ConstMatrixView rows, int64_t k, int64_t count, std::byte* block) {
    const ConvertFunction convert = ConversionOf(rows.dtype(), dtype_, convert_);
    RowReader<uint16_t> low_reader(rows, convert);
    RowReader<uint16_t> high_reader(rows, convert);
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      const int64_t low_row = 2 * pair - column;
      const int64_t high_row = low_row + 1;
      const bool has_low = low_row >= 0 && low_row < rows.rows();
      const bool has_high = high_row >= 0 && high_row < rows.rows();
      const uint16_t* low = has_low ? low_reader.Read(low_row, k, count) : nullptr;
      const uint16_t* high = has_high ? high_reader.Read(high_row, k, count) : nullptr;
      if (has_low && has_high) {
        uint32_t* to = reinterpret_cast<uint32_t*>(block) + pair;
        for (int64_t i = 0; i < count; ++i) to[i * kPairs] = low[i] | uint32_t{high[i]} << 16;
      } else if (has_low || has_high) {
        const uint16_t* from = has_low ? low : high;
        uint16_t* to = reinterpret_cast<uint16_t*>(block) + 2 * pair + (has_high ? 1 : 0);
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

int64_t PanelBytes(const LinearShape& shape) {
  if (IsQuantized(shape.format)) return QuantizedPanelBytes(shape);
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  if (shape.format == WeightFormat::kBF16) {
    return panels * PairsBefore(shape.k_borders.data(), shape.num_slices()) * kPairBytes;
  }
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
    const std::vector<int64_t>& borders = linear.shape.k_borders;
    const int num_slices = linear.shape.num_slices();
    const uint32_t* from =
        reinterpret_cast<const uint32_t*>(
            linear.packed +
            row / kPanelColumns * PairsBefore(borders.data(), num_slices) * kPairBytes) +
        column;
    for (int slice = 0; slice < num_slices; ++slice) {
      for (int64_t k = borders[slice]; k < borders[slice + 1]; ++k) {
        const bool is_odd = (k - borders[slice]) % 2 != 0;
        out[k] = F32OfBf16(static_cast<uint16_t>(is_odd ? *from >> 16 : *from)) + 0.0f;
        if (is_odd || k + 1 == borders[slice + 1]) from += kPanelColumns;
      }
    }
  }
}

}  // namespace bulkhead
