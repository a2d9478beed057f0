#include "kernels/packing/quantized_packing.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/matmul/op.h"
#include "kernels/packing/panel_format.h"
#include "kernels/packing/weight_quantizer.h"

namespace bulkhead {
namespace {

constexpr int64_t kAlign = 64;

struct Header {
  int64_t num_cells;
  int64_t panels_begin;
  int64_t panel_bytes;
  int64_t scales_offset;
  int64_t zeros_offset;
  int64_t x_bytes;
  int64_t index_begin;  // 0: none
  int64_t bf16_scales;  // 0 or 1
  int64_t has_factors;  // 0 or 1
};

struct Layout {
  Header header;
  std::vector<PackedCell> cells;
  int64_t total_bytes;
};

Layout LayoutOf(const LinearShape& shape) {
  const PanelFormat format = PanelFormatOf(shape.format);
  const bool indexed = shape.groups.indexed > 0;
  const bool has_factors = shape.format == WeightFormat::kNvfp4;
  BH_CHECK((format == PanelFormat::kFp4) ==
           (has_factors || shape.groups.scales == ScaleFormat::kE8M0));
  BH_CHECK(!has_factors || !indexed);
  BH_CHECK((format == PanelFormat::kFp8) == (shape.groups.scales == ScaleFormat::kF32));
  Layout layout{};
  int64_t offset = 0;
  int64_t x_offset = 0;
  for (const WeightCell& cell : CellsOf(shape)) {
    BH_CHECK(cell.size() <= kMaxCellInputs);
    const int64_t words = (cell.size() + 3) / 4;
    layout.cells.push_back({static_cast<int32_t>(cell.begin), static_cast<int32_t>(cell.size()),
                            cell.slice, static_cast<int32_t>(words), offset, x_offset});
    offset += words * QuantizedWordBytes(format);
    if (!indexed) offset += ScaleBytes(format) + ZeroBytes(format);
    x_offset += 4 * words;
  }
  Header& header = layout.header;
  header.scales_offset = offset;
  if (has_factors) offset += kPanelColumns * static_cast<int64_t>(sizeof(float));
  if (indexed) offset += shape.groups.indexed * int64_t{ScaleBytes(format)};
  header.zeros_offset = offset;
  if (indexed) offset += shape.groups.indexed * int64_t{ZeroBytes(format)};
  header.bf16_scales = shape.groups.scales == ScaleFormat::kBF16 ? 1 : 0;
  header.has_factors = has_factors ? 1 : 0;
  header.num_cells = static_cast<int64_t>(layout.cells.size());
  header.panel_bytes = RoundUp(offset, kAlign);
  header.x_bytes = RoundUp(x_offset + 16, kAlign);
  int64_t begin = sizeof(Header) + header.num_cells * static_cast<int64_t>(sizeof(PackedCell));
  header.index_begin = indexed ? begin : 0;
  if (indexed) begin += shape.cols * static_cast<int64_t>(sizeof(int32_t));
  header.panels_begin = RoundUp(begin, kAlign);
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  layout.total_bytes = header.panels_begin + panels * header.panel_bytes;
  return layout;
}

class Sink final : public WeightSink {
 public:
  Sink(const Linear& linear, const ConvertKernels& convert, const PackingKernels& packing)
      : linear_(linear), cells_(CellsOf(linear.shape)), convert_(convert), packing_(packing) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= shape.rows && rows.cols() == shape.cols);
    BH_CHECK(shape.groups.indexed == 0);
    std::vector<float> weights(shape.cols);
    std::vector<uint8_t> codes(kPanelColumns * shape.cols);
    for (int64_t begin = 0; begin < rows.rows();) {
      const int64_t count = RowsOfPanel(row_begin + begin, rows.rows() - begin);
      for (int64_t i = 0; i < count; ++i) {
        Widen(rows, begin + i, weights.data());
        QuantizeRow(row_begin + begin + i, weights.data(), codes.data() + i * shape.cols);
      }
      PutCodes(row_begin + begin, count, codes.data());
      begin += count;
    }
  }

  void PutQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows <= shape.rows);
    for (int64_t begin = 0; begin < rows.rows;) {
      const int64_t count = RowsOfPanel(row_begin + begin, rows.rows - begin);
      PutCodes(row_begin + begin, count, rows.codes + begin * shape.cols);
      begin += count;
    }
    const int64_t groups = NumGroups(shape);
    for (int64_t i = 0; i < rows.rows; ++i) {
      if (panels_.has_factors) PutFactor(row_begin + i, rows.factors[i]);
      const auto put = [&](ScalingPlace place, int64_t group) {
        const int64_t at = i * groups + group;
        WeightScaling scaling;
        if (format_ == PanelFormat::kFp8) {
          scaling.scale = std::bit_cast<uint32_t>(rows.f32_scales[at]);
        } else {
          scaling.scale = rows.scales[at];
        }
        if (ZeroBytes(format_) > 0) scaling.zero = rows.zeros[at];
        PutScaling(row_begin + i, place, scaling);
      };
      if (shape.groups.indexed > 0) {
        for (int64_t group = 0; group < groups; ++group) {
          put({panels_.scales_offset + group * ScaleBytes(format_),
               panels_.zeros_offset + group * ZeroBytes(format_)},
              group);
        }
      } else {
        for (size_t c = 0; c < cells_.size(); ++c) {
          put(CellScaling(static_cast<int64_t>(c)), cells_[c].group);
        }
      }
    }
  }

  void PutGroupIndex(absl::Span<const int32_t> group_of_input) override {
    BH_CHECK(panels_.group_of_input != nullptr &&
             static_cast<int64_t>(group_of_input.size()) == linear_.shape.cols);
    for (const int32_t group : group_of_input) {
      BH_CHECK(group >= 0 && group < linear_.shape.groups.indexed);
    }
    // Our own memory; the view is const for all other users.
    std::copy(group_of_input.begin(), group_of_input.end(),
              const_cast<int32_t*>(panels_.group_of_input));
  }

 private:
  struct ScalingPlace {
    int64_t scales;  // in a panel
    int64_t zeros;
  };

  char* PanelOf(int64_t row) const {
    return const_cast<char*>(panels_.panels) + row / kPanelColumns * panels_.panel_bytes;
  }
  bool in_nibbles() const { return QuantizedWordBytes(format_) == 64; }

  ScalingPlace CellScaling(int64_t cell) const {
    const PackedCell& packed = panels_.cells[cell];
    const int64_t scales = packed.offset + int64_t{packed.words} * QuantizedWordBytes(format_);
    return {scales, scales + ScaleBytes(format_)};
  }

  void PutScaling(int64_t row, ScalingPlace place, WeightScaling scaling) {
    char* panel = PanelOf(row);
    const int64_t column = row % kPanelColumns;
    const int bytes = ScaleBytes(format_) / kPanelColumns;
    std::memcpy(panel + place.scales + bytes * column, &scaling.scale, bytes);
    if (ZeroBytes(format_) > 0) panel[place.zeros + column] = static_cast<char>(scaling.zero);
  }

  void PutFactor(int64_t row, float factor) {
    const int64_t at = panels_.scales_offset + row % kPanelColumns * int64_t{sizeof(factor)};
    std::memcpy(PanelOf(row) + at, &factor, sizeof(factor));
  }

  void Widen(ConstMatrixView rows, int64_t row, float* out) const {
    const std::byte* from = rows.RowBytes(row);
    if (rows.dtype() == DType::kF32) {
      std::memcpy(out, from, rows.cols() * sizeof(float));
    } else {
      (rows.dtype() == DType::kBF16 ? convert_.bf16_to_f32 : convert_.f16_to_f32)(from, rows.cols(),
                                                                                  out);
    }
  }

  void QuantizeRow(int64_t row, const float* weights, uint8_t* codes) {
    for (size_t c = 0; c < cells_.size(); ++c) {
      const int64_t begin = cells_[c].begin;
      const auto size = static_cast<size_t>(cells_[c].size());
      const WeightScaling scaling = QuantizeWeights({weights + begin, size}, linear_.shape.format,
                                                    packing_.loops, {codes + begin, size});
      PutScaling(row, CellScaling(static_cast<int64_t>(c)), scaling);
    }
  }

  // The number of `left` rows from `row` on that are in its panel.
  static int64_t RowsOfPanel(int64_t row, int64_t left) {
    return std::min(left, kPanelColumns - row % kPanelColumns);
  }

  // codes [count, cols] for rows of one panel.
  void PutCodes(int64_t row, int64_t count, const uint8_t* codes) {
    const int64_t cols = linear_.shape.cols;
    if (count == kPanelColumns) return PutWholePanel(row, codes);
    for (int64_t i = 0; i < count; ++i) {
      for (int cell = 0; cell < panels_.num_cells; ++cell) {
        PutWords(row + i, panels_.cells[cell], 0, codes + i * cols);
      }
    }
  }

  void PutWholePanel(int64_t row, const uint8_t* codes) {
    const int64_t cols = linear_.shape.cols;
    for (int i = 0; i < panels_.num_cells; ++i) {
      const PackedCell& cell = panels_.cells[i];
      const void* rows[kPanelColumns];
      for (int64_t r = 0; r < kPanelColumns; ++r) rows[r] = codes + r * cols + cell.begin;
      uint32_t* out = reinterpret_cast<uint32_t*>(PanelOf(row) + cell.offset);
      const int whole_words = cell.count / 4;
      if (in_nibbles()) {
        packing_.pair_nibbles(rows, rows + 16, whole_words, out);
      } else {
        packing_.interleave(rows, whole_words, kPanelColumns, out);
        packing_.interleave(rows + 16, whole_words, kPanelColumns, out + 16);
      }
      if (whole_words == cell.words) continue;
      for (int64_t r = 0; r < kPanelColumns; ++r) {
        PutWords(row + r, cell, whole_words, codes + r * cols);
      }
    }
  }

  // The words of one row from `first_word` of a cell on.
  void PutWords(int64_t row, const PackedCell& cell, int32_t first_word, const uint8_t* codes) {
    char* panel = PanelOf(row);
    const int64_t column = row % kPanelColumns;
    char* at = panel + cell.offset + column % 16 * 4 + (in_nibbles() ? 0 : column / 16 * 64);
    const int shift = in_nibbles() && column >= 16 ? 4 : 0;
    for (int32_t word = first_word; word < cell.words; ++word) {
      uint32_t four = 0;
      const int count = std::min(4, cell.count - 4 * word);
      std::memcpy(&four, codes + cell.begin + 4 * word, count);
      uint32_t& to = *reinterpret_cast<uint32_t*>(at + word * QuantizedWordBytes(format_));
      if (in_nibbles()) {
        // The other half of each byte may be another thread's.
        std::atomic_ref<uint32_t>(to).fetch_or(four << shift, std::memory_order_relaxed);
      } else {
        to = four;
      }
    }
  }

  const Linear linear_;
  const PanelFormat format_ = PanelFormatOf(linear_.shape.format);
  const std::vector<WeightCell> cells_;
  const ConvertKernels& convert_;
  const PackingKernels& packing_;
  const QuantizedPanels panels_ = QuantizedPanelsOf(linear_);
};

}  // namespace

int64_t QuantizedPanelBytes(const LinearShape& shape) { return LayoutOf(shape).total_bytes; }

std::unique_ptr<WeightSink> NewQuantizedPanelSink(const Linear& linear,
                                                  const ConvertKernels& convert,
                                                  const PackingKernels& packing) {
  const Layout layout = LayoutOf(linear.shape);
  std::memcpy(linear.packed, &layout.header, sizeof(Header));
  std::copy(layout.cells.begin(), layout.cells.end(),
            reinterpret_cast<PackedCell*>(linear.packed + sizeof(Header)));
  return std::make_unique<Sink>(linear, convert, packing);
}

QuantizedPanels QuantizedPanelsOf(const Linear& linear) {
  Header header;
  std::memcpy(&header, linear.packed, sizeof(Header));
  QuantizedPanels panels{};
  panels.cells = reinterpret_cast<const PackedCell*>(linear.packed + sizeof(Header));
  panels.num_cells = static_cast<int>(header.num_cells);
  panels.panels = reinterpret_cast<const char*>(linear.packed + header.panels_begin);
  panels.panel_bytes = header.panel_bytes;
  if (header.index_begin > 0) {
    panels.group_of_input = reinterpret_cast<const int32_t*>(linear.packed + header.index_begin);
  }
  panels.scales_offset = header.scales_offset;
  panels.zeros_offset = header.zeros_offset;
  panels.x_bytes = header.x_bytes;
  panels.bf16_scales = header.bf16_scales != 0;
  panels.has_factors = header.has_factors != 0;
  return panels;
}

void UnpackQuantizedRow(const Linear& linear, int64_t row, float* out) {
  const QuantizedPanels weight = QuantizedPanelsOf(linear);
  const PanelFormat format = PanelFormatOf(linear.shape.format);
  const bool in_nibbles = QuantizedWordBytes(format) == 64;
  const char* panel = weight.panels + row / kPanelColumns * weight.panel_bytes;
  const int64_t column = row % kPanelColumns;
  const float* const factors = FactorsOf(weight, panel);
  const auto scaling_at = [&](int64_t scales, int64_t zeros) {
    WeightScaling scaling{0, format == PanelFormat::kFp4 ? kFp4Zero : uint8_t{128},
                          linear.shape.groups.scales};
    const int bytes = ScaleBytes(format) / kPanelColumns;
    std::memcpy(&scaling.scale, panel + scales + bytes * column, bytes);
    if (factors != nullptr) scaling.scale = Fp4ScaleBits(scaling.scale, factors[column]);
    if (ZeroBytes(format) > 0) scaling.zero = static_cast<uint8_t>(panel[zeros + column]);
    return scaling;
  };
  for (int i = 0; i < weight.num_cells; ++i) {
    const PackedCell& cell = weight.cells[i];
    const int64_t scales = cell.offset + int64_t{cell.words} * QuantizedWordBytes(format);
    WeightScaling scaling{};
    if (weight.group_of_input == nullptr) scaling = scaling_at(scales, scales + ScaleBytes(format));
    for (int32_t k = 0; k < cell.count; ++k) {
      if (weight.group_of_input != nullptr) {
        const int64_t group = weight.group_of_input[cell.begin + k];
        scaling = scaling_at(weight.scales_offset + group * ScaleBytes(format),
                             weight.zeros_offset + group * ZeroBytes(format));
      }
      const char* word = panel + cell.offset + k / 4 * QuantizedWordBytes(format);
      auto code =
          static_cast<uint8_t>(word[column % 16 * 4 + k % 4 + (in_nibbles ? 0 : column / 16 * 64)]);
      if (in_nibbles) code = column < 16 ? code & 0xF : code >> 4;
      if (format == PanelFormat::kFp4) code = kFp4Steps[code];
      out[cell.begin + k] = DequantizeWeight(code, scaling) + 0.0F;
    }
  }
}

int64_t MaxCells(int64_t inputs, int min_group) { return inputs / min_group + 2 * kMaxSlices; }

int64_t MaxInputBytes(int64_t inputs, int min_group) {
  return RoundUp(inputs + 3 * MaxCells(inputs, min_group) + 16, kAlign);
}

}  // namespace bulkhead
