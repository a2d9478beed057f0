#include "kernels/packing/cuda_packing.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/base/call_once.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/packing/cuda_layout.h"
#include "kernels/packing/weight_quantizer.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

using cuda::CodePlace;
using cuda::kChunkInputs;
using cuda::kDepthGranule;
using cuda::kTileRows;

float NumberOf(const std::byte* row, DType dtype, int64_t col) {
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, row + col * 4, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, row + col * 2, 2);
  return dtype == DType::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
}

class NumberSink final : public WeightSink {
 public:
  NumberSink(const Linear& linear, CopyToDevice copy)
      : linear_(linear), depth_(PackedLayout(linear.shape).depth()), copy_(std::move(copy)) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= shape.rows && rows.cols() == shape.cols);
    if (shape.format == WeightFormat::kF32) {
      std::vector<float> numbers(rows.rows() * depth_);
      for (int64_t row = 0; row < rows.rows(); ++row) {
        for (int64_t col = 0; col < shape.cols; ++col) {
          numbers[row * depth_ + col] = NumberOf(rows.RowBytes(row), rows.dtype(), col);
        }
      }
      return Copy(row_begin, numbers);
    }
    const bool bf16 = shape.format == WeightFormat::kBF16;
    const bool as_stored = rows.dtype() == (bf16 ? DType::kBF16 : DType::kF16);
    std::vector<uint16_t> numbers(rows.rows() * depth_);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      if (as_stored) {
        std::memcpy(&numbers[row * depth_], rows.RowBytes(row), shape.cols * 2);
        continue;
      }
      for (int64_t col = 0; col < shape.cols; ++col) {
        const float x = NumberOf(rows.RowBytes(row), rows.dtype(), col);
        numbers[row * depth_ + col] = bf16 ? Bf16OfF32(x) : F16OfF32(x);
      }
    }
    Copy(row_begin, numbers);
  }
  void PutQuantizedRows(int64_t, const QuantizedRows&) override { BH_CHECK(false); }
  void PutGroupIndex(absl::Span<const int32_t>) override { BH_CHECK(false); }

 private:
  template <typename Number>
  void Copy(int64_t row_begin, const std::vector<Number>& numbers) {
    constexpr int64_t kBytes = sizeof(Number);
    copy_(numbers.data(), linear_.packed + row_begin * depth_ * kBytes,
          static_cast<int64_t>(numbers.size()) * kBytes);
  }

  const Linear linear_;
  const int64_t depth_;
  const CopyToDevice copy_;
};

class CodeSink final : public WeightSink {
 public:
  CodeSink(const Linear& linear, CopyToDevice copy)
      : linear_(linear),
        layout_(linear.shape),
        indexed_(linear.shape.groups.indexed > 0),
        copy_(std::move(copy)) {
    if (!indexed_) cells_ = CellsOf(linear.shape);
    rows_left_ = linear.shape.rows;
    parts_left_ = indexed_ ? 2 : 1;
  }

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows() <= shape.rows && rows.cols() == shape.cols);
    BH_CHECK(!indexed_);
    MakeRoom();
    std::vector<float> values(shape.cols);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      for (int64_t col = 0; col < shape.cols; ++col) {
        values[col] = NumberOf(rows.RowBytes(row), rows.dtype(), col);
      }
      const int64_t to = row_begin + row;
      for (size_t i = 0; i < cells_.size(); ++i) {
        const WeightCell& cell = cells_[i];
        const auto size = static_cast<size_t>(cell.size());
        const WeightScaling scaling =
            QuantizeWeights(absl::MakeConstSpan(values).subspan(cell.begin, size), shape.format,
                            kPlainWeightLoops, {&codes_[to * shape.cols + cell.begin], size});
        PutScaling(to, static_cast<int64_t>(i), scaling);
      }
    }
    CountRows(rows.rows());
  }

  void PutQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override {
    const LinearShape& shape = linear_.shape;
    BH_CHECK(row_begin >= 0 && row_begin + rows.rows <= shape.rows);
    MakeRoom();
    std::copy_n(rows.codes, rows.rows * shape.cols, &codes_[row_begin * shape.cols]);
    const int64_t groups = NumGroups(shape);
    for (int64_t row = 0; row < rows.rows; ++row) {
      for (int64_t i = 0; i < layout_.num_cells(); ++i) {
        const int64_t from = row * groups + (indexed_ ? i : cells_[i].group);
        WeightScaling scaling{.format = shape.groups.scales};
        scaling.scale = rows.f32_scales != nullptr ? std::bit_cast<uint32_t>(rows.f32_scales[from])
                                                   : rows.scales[from];
        if (rows.zeros != nullptr) scaling.zero = rows.zeros[from];
        PutScaling(row_begin + row, i, scaling);
      }
      if (rows.factors != nullptr) factors_[row_begin + row] = rows.factors[row];
    }
    CountRows(rows.rows);
  }

  void PutGroupIndex(absl::Span<const int32_t> group_of_input) override {
    BH_CHECK(indexed_ && static_cast<int64_t>(group_of_input.size()) == linear_.shape.cols);
    index_.assign(group_of_input.begin(), group_of_input.end());
    CountPart();
  }

  int64_t HostBytes() const override { return PackingHostBytes(linear_.shape); }

 private:
  void MakeRoom() {
    absl::call_once(made_room_, [this] {
      codes_.resize(linear_.shape.rows * linear_.shape.cols);
      scaling_.resize(layout_.num_cells() * layout_.padded_rows());
      if (linear_.shape.format == WeightFormat::kNvfp4) factors_.resize(layout_.padded_rows());
    });
  }

  void PutScaling(int64_t row, int64_t cell, const WeightScaling& scaling) {
    uint32_t& word = scaling_[cell * layout_.padded_rows() + row];
    const WeightFormat format = linear_.shape.format;
    if (IsFp4(format)) {
      const bool is_nvfp4 = format == WeightFormat::kNvfp4;
      BH_CHECK(scaling.format == (is_nvfp4 ? ScaleFormat::kE4M3 : ScaleFormat::kE8M0));
      word = scaling.scale;
      return;
    }
    word = std::bit_cast<uint32_t>(scaling.Scale());
    if (format == WeightFormat::kInt8) BH_CHECK(scaling.zero == 128);
    if (format != WeightFormat::kInt4) return;
    BH_CHECK((word & cuda::kInt4ZeroBits) == 0 && scaling.zero <= cuda::kInt4ZeroBits);
    word = cuda::ScalingOfInt4(word, scaling.zero);
  }

  void CountRows(int64_t rows) {
    if (rows_left_.fetch_sub(rows) == rows) CountPart();
  }
  void CountPart() {
    if (parts_left_.fetch_sub(1) == 1) Finish();
  }

  // Lays out each cell's inputs in the depth, in whole runs: chunks, or halves for nvfp4. Groups
  // that an index does not name are no cells; the last cell has the rest of the depth.
  void LayOutDepth() {
    const int64_t run_inputs = layout_.run_inputs();
    input_at_.assign(layout_.depth(), -1);
    cell_of_run_.resize(layout_.depth() / run_inputs);
    std::vector<std::vector<int32_t>> inputs(layout_.num_cells());
    for (int64_t input = 0; indexed_ && input < linear_.shape.cols; ++input) {
      inputs[index_[input]].push_back(static_cast<int32_t>(input));
    }
    std::vector<int64_t> begins;  // runs
    int64_t at = 0;
    for (int64_t cell = 0; cell < layout_.num_cells(); ++cell) {
      for (int64_t i = indexed_ ? 0 : cells_[cell].begin; !indexed_ && i < cells_[cell].end; ++i) {
        inputs[cell].push_back(static_cast<int32_t>(i));
      }
      if (inputs[cell].empty()) continue;
      const auto scaling = scaling_.begin() + cell * layout_.padded_rows();
      std::copy_n(scaling, layout_.padded_rows(),
                  scaling_.begin() + std::ssize(begins) * layout_.padded_rows());
      std::copy(inputs[cell].begin(), inputs[cell].end(), input_at_.begin() + at);
      begins.push_back(at / run_inputs);
      at += RoundUp(static_cast<int64_t>(inputs[cell].size()), run_inputs);
    }
    BH_CHECK(at <= layout_.depth());
    int64_t end = std::ssize(cell_of_run_);
    for (int64_t cell = std::ssize(begins) - 1; cell >= 0; end = begins[cell--]) {
      std::fill(cell_of_run_.begin() + begins[cell], cell_of_run_.begin() + end, cell);
    }
  }

  // With nvfp4 all chunks are one cell.
  std::vector<int32_t> ChunkCells() const {
    const bool is_one = linear_.shape.format == WeightFormat::kNvfp4;
    std::vector<int32_t> chunk_cell(layout_.depth() / kChunkInputs);
    int64_t left = 0;
    for (int64_t chunk = std::ssize(chunk_cell) - 1; chunk >= 0; --chunk) {
      const int64_t cell = is_one ? 0 : cell_of_run_[chunk];
      const bool is_last =
          chunk + 1 == std::ssize(chunk_cell) || cell != cuda::CellOf(chunk_cell[chunk + 1]);
      left = is_last ? 1 : left + 1;
      BH_CHECK(cell < cuda::kMaxCells && left < cuda::kMaxCells / 2);
      chunk_cell[chunk] = cuda::ChunkCell(cell, left);
    }
    return chunk_cell;
  }

  // Rows of one tile: their codes, and its words, are close together.
  void PackTile(int64_t begin, int64_t end, uint32_t* words) const {
    const LinearShape& shape = linear_.shape;
    for (int64_t at = 0; at < layout_.depth(); ++at) {
      if (input_at_[at] < 0) continue;
      for (int64_t row = begin; row < end; ++row) {
        const CodePlace place = WeightBits(shape.format) == 8
                                    ? cuda::Int8Place(row, at, layout_.depth())
                                    : cuda::Int4Place(row, at, layout_.depth());
        words[place.word] |= uint32_t{codes_[row * shape.cols + input_at_[at]]} << place.shift;
      }
    }
  }

  std::vector<uint8_t> Fp4Scales() const {
    const int64_t rows = layout_.padded_rows();
    std::vector<uint8_t> scales(rows * std::ssize(cell_of_run_));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t run = 0; run < std::ssize(cell_of_run_); ++run) {
        scales[cuda::Fp4ScalePlace(linear_.shape.format, row, run, layout_.depth())] =
            static_cast<uint8_t>(scaling_[cell_of_run_[run] * rows + row]);
      }
    }
    return scales;
  }

  // Assembles the weight and copies it; then frees the host memory.
  void Finish() {
    LayOutDepth();
    const LinearShape& shape = linear_.shape;
    std::vector<std::byte> image(layout_.bytes());
    auto* const words = reinterpret_cast<uint32_t*>(image.data());
    for (int64_t begin = 0; begin < shape.rows; begin += kTileRows) {
      PackTile(begin, std::min<int64_t>(begin + kTileRows, shape.rows), words);
    }
    const auto put = [&](int64_t where, const auto& values) {
      std::memcpy(image.data() + where, values.data(), values.size() * sizeof(values[0]));
    };
    if (IsFp4(shape.format)) {
      put(layout_.group_scales_at(), Fp4Scales());
      for (float& factor : factors_) factor *= cuda::kNvfp4Factor;
      if (!factors_.empty()) put(layout_.scaling_at(), factors_);
    } else {
      put(layout_.scaling_at(), scaling_);
    }
    put(layout_.chunk_cell_at(), ChunkCells());
    put(layout_.input_at_at(), input_at_);
    copy_(image.data(), linear_.packed, layout_.bytes());
    codes_ = {};
    scaling_ = {};
    cells_ = {};
    index_ = {};
    factors_ = {};
    input_at_ = {};
    cell_of_run_ = {};
  }

  const Linear linear_;
  const PackedLayout layout_;
  const bool indexed_;
  const CopyToDevice copy_;
  std::vector<WeightCell> cells_;  // without an index
  absl::once_flag made_room_;      // for the next three; then threads write to separate rows
  std::vector<uint8_t> codes_;     // [rows, cols]
  std::vector<uint32_t> scaling_;  // [cells][padded rows]; fp4: bytes of group_scales
  std::vector<float> factors_;     // [padded rows], for nvfp4
  std::vector<int32_t> index_;
  std::vector<int32_t> input_at_;
  std::vector<int32_t> cell_of_run_;
  std::atomic<int64_t> rows_left_ = 0;
  std::atomic<int> parts_left_ = 0;
};

}  // namespace

PackedLayout::PackedLayout(const LinearShape& shape) {
  padded_rows_ = RoundUp(shape.rows, kTileRows);
  if (!IsQuantized(shape.format)) {
    depth_ = RoundUp(shape.cols, kDepthGranule);
    bytes_ = padded_rows_ * depth_ * WeightBits(shape.format) / 8;
    return;
  }
  const bool is_nvfp4 = shape.format == WeightFormat::kNvfp4;
  if (is_nvfp4) run_inputs_ = kChunkInputs / cuda::Fp4Groups(shape.format);
  if (shape.groups.indexed > 0) {
    BH_CHECK(!is_nvfp4);
    keeps_order_ = false;
    num_cells_ = NumGroups(shape);
    depth_ = RoundUp(shape.cols + num_cells_ * (kChunkInputs - 1), kDepthGranule);
    longest_cell_chunks_ = depth_ / kChunkInputs;
  } else {
    const std::vector<WeightCell> cells = CellsOf(shape);
    num_cells_ = static_cast<int64_t>(cells.size());
    is_in_128s_ = true;
    for (const WeightCell& cell : cells) {
      keeps_order_ = keeps_order_ && depth_ == cell.begin;
      const bool is_last_at_most = cell.end == shape.cols && cell.size() < 128;
      is_in_128s_ = is_in_128s_ && (cell.size() == 128 || is_last_at_most);
      const int64_t runs = CeilDiv(cell.size(), run_inputs_);
      depth_ += runs * run_inputs_;
      // With the rest of the depth, in case it is the last cell.
      longest_cell_chunks_ = std::max(longest_cell_chunks_, runs + 1);
    }
  }
  depth_ = RoundUp(depth_, kDepthGranule);
  if (is_nvfp4) longest_cell_chunks_ = depth_ / kChunkInputs;
  scaling_at_ = padded_rows_ * depth_ * WeightBits(shape.format) / 8;
  const int64_t words = is_nvfp4 ? 1 : IsFp4(shape.format) ? 0 : num_cells_;
  group_scales_at_ = scaling_at_ + padded_rows_ * words * 4;
  chunk_cell_at_ = group_scales_at_;
  if (IsFp4(shape.format)) chunk_cell_at_ += padded_rows_ * depth_ / run_inputs_;
  input_at_at_ = chunk_cell_at_ + depth_ / kChunkInputs * 4;
  bytes_ = input_at_at_ + depth_ * 4;
}

cuda::PackedWeight PackedLayout::Parameters(const LinearShape& shape,
                                            const std::byte* packed) const {
  const auto* const base = reinterpret_cast<const unsigned char*>(packed);
  cuda::PackedWeight weight;
  weight.numbers = base;
  if (IsQuantized(shape.format)) {
    weight.scaling = reinterpret_cast<const uint32_t*>(base + scaling_at_);
    weight.chunk_cell = reinterpret_cast<const int32_t*>(base + chunk_cell_at_);
    if (!keeps_order_) weight.input_at = reinterpret_cast<const int32_t*>(base + input_at_at_);
  }
  weight.rows = static_cast<int>(shape.rows);
  weight.inputs = static_cast<int>(shape.cols);
  weight.depth = static_cast<int>(depth_);
  return weight;
}

int64_t PackingHostBytes(const LinearShape& shape) {
  if (!IsQuantized(shape.format)) return 0;
  const PackedLayout layout(shape);
  return shape.rows * shape.cols + 4 * layout.num_cells() * layout.padded_rows() +
         layout.scaling_bytes() + layout.bytes();
}

std::unique_ptr<WeightSink> NewPackingSink(const Linear& linear, CopyToDevice copy) {
  if (IsQuantized(linear.shape.format)) return std::make_unique<CodeSink>(linear, std::move(copy));
  return std::make_unique<NumberSink>(linear, std::move(copy));
}

}  // namespace bulkhead
