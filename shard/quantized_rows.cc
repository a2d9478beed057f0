// How rows of quantised tensors are read (layouts: shard/quantized_tensors.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/status.h"
#include "memory/ledger.h"
#include "shard/quantized_tensors.h"
#include "shard/widen.h"

namespace bulkhead {
namespace {

constexpr int kWordCodes = 8;  // of 4 bits
constexpr std::array<int, kWordCodes> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int kE8m0Nan = 0xFF;
constexpr int kLargestE8m0 = 252;  // times 6, the largest fp4, is finite in f32
constexpr int64_t kInputsAtOnce =
    kWordCodes;  // so that their words need no more space than a GPTQ row

// Columns [cols.begin, cols.end) of row `row` of a tensor of elements of `width` bytes.
absl::Status ReadCols(const LocatedTensor& tensor, int64_t row, Range cols, int64_t width,
                      void* out) {
  const int64_t row_cols = tensor.entry->shape[1];
  BH_CHECK(row < tensor.entry->shape[0] && cols.end <= row_cols);
  return tensor.file->ReadAt(tensor.entry->begin + (row * row_cols + cols.begin) * width,
                             cols.size() * width, static_cast<std::byte*>(out));
}

// Rows `rows`, columns [cols.begin, cols.end) of the tensor: out [rows, cols].
absl::Status ReadMatrix(const LocatedTensor& tensor, Range rows, Range cols, int64_t row_bytes,
                        void* out) {
  auto* to = static_cast<std::byte*>(out);
  const int64_t begin = tensor.entry->begin + rows.begin * row_bytes + cols.begin;
  if (cols.size() == row_bytes) return tensor.file->ReadAt(begin, rows.size() * row_bytes, to);
  for (int64_t row = 0; row < rows.size(); ++row) {
    BH_RETURN_IF_ERROR(
        tensor.file->ReadAt(begin + row * row_bytes, cols.size(), to + row * cols.size()));
  }
  return absl::OkStatus();
}

// E4M3.
bool IsNan(uint8_t code) { return (code & 0x7F) == 0x7F; }

// f16 or bf16.
bool IsFinite(uint16_t scale, DType dtype) {
  const int exponent = dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
  return (scale & exponent) != exponent;
}

absl::Status NoFiniteScale(int64_t output, int64_t group) {
  return absl::DataLossError(
      absl::StrCat("the scale of output ", output, " and group ", group, " is infinite or NaN"));
}

// Unpacks eight 4-bit codes, the first in the lowest bits, to bytes.
uint64_t EightCodes(uint32_t word) {
  uint64_t eight = word;
  eight = (eight | eight << 16) & 0x0000FFFF0000FFFF;
  eight = (eight | eight << 8) & 0x00FF00FF00FF00FF;
  return (eight | eight << 4) & 0x0F0F0F0F0F0F0F0F;
}

}  // namespace

// The layout of ReadRows' staging memory.
struct QuantizedTensors::Staging {
  uint32_t* words;         // by input: one row of a tensor, or AWQ words of kInputsAtOnce rows
  uint8_t* raw;            // by output: rows of codes as in the file
  std::byte* file_scales;  // by input: one group's, by output: all rows'
  uint8_t* codes;
  uint16_t* scales;
  float* f32_scales;  // fp8
  float* factors;     // scales in E4M3
  uint8_t* zeros;
  int64_t bytes;
};

QuantizedTensors::Staging QuantizedTensors::LayOut(std::byte* memory, int64_t rows,
                                                   Range cols) const {
  BumpAllocator allocator(memory);
  const auto next = [&](int64_t bytes) { return allocator.Next(bytes); };
  const int64_t groups = GroupsOf(cols).size();
  const int64_t file_groups = FileGroupsOf(cols).size();
  Staging staging{};
  staging.words = reinterpret_cast<uint32_t*>(
      next(is_by_output() ? file_groups * 4 : (rows + 2 * kWordCodes) * 4));
  staging.raw = reinterpret_cast<uint8_t*>(
      next(is_by_output() && config.bits == 4 ? rows * RowBytes(cols) : 0));
  staging.file_scales = next(rows * (is_by_output() ? file_groups * (is_fp8() ? 4 : 2) : 2));
  staging.codes = reinterpret_cast<uint8_t*>(next(rows * cols.size()));
  staging.scales = reinterpret_cast<uint16_t*>(next(rows * groups * 2));
  staging.f32_scales = reinterpret_cast<float*>(next(is_fp8() ? rows * groups * 4 : 0));
  staging.zeros = reinterpret_cast<uint8_t*>(next(rows * groups));
  staging.factors = reinterpret_cast<float*>(next(factor != 0 ? rows * 4 : 0));
  staging.bytes = allocator.used_bytes();
  return staging;
}

Range QuantizedTensors::GroupsOf(Range cols) const {
  if (config.act_order) return {0, inputs / group_size};
  return {cols.begin / group_size, (cols.end - 1) / group_size + 1};
}

int64_t QuantizedTensors::FileGroup(int64_t group) const {
  return config.group_size == 0 ? 0 : group * group_size / config.group_size;
}

Range QuantizedTensors::FileGroupsOf(Range cols) const {
  const Range groups = GroupsOf(cols);
  return {FileGroup(groups.begin), FileGroup(groups.end - 1) + 1};
}

Range QuantizedTensors::ScaleRowsOf(Range rows) const {
  if (config.group_outputs == 0) return {0, 1};
  return {rows.begin / config.group_outputs, (rows.end - 1) / config.group_outputs + 1};
}

Range QuantizedTensors::WordsOf(Range range) const {
  return {range.begin / WordCodes(), (range.end + WordCodes() - 1) / WordCodes()};
}

int64_t QuantizedTensors::RowBytes(Range cols) const {
  return config.bits == 8 ? cols.size() : (cols.end + 1) / 2 - cols.begin / 2;
}

int64_t QuantizedTensors::StagingBytes(Range cols, int64_t rows) const {
  return LayOut(nullptr, rows, cols).bytes;
}

int64_t QuantizedTensors::ReadBytes(Range cols, int64_t rows) const {
  if (is_by_output()) return rows * (RowBytes(cols) + 2 * FileGroupsOf(cols).size());
  return rows * cols.size() * config.bits / 8 +
         GroupsOf(cols).size() * rows * (16 + config.bits) / 8;
}

// An AWQ word has one input of eight outputs; words of kInputsAtOnce inputs are read together.
absl::Status QuantizedTensors::ReadAwqCodes(Range rows, Range cols, const Staging& staging) const {
  uint32_t* const words = staging.words;
  const Range of_rows = WordsOf(rows);
  for (int64_t col = cols.begin; col < cols.end; col += kInputsAtOnce) {
    const int64_t inputs = std::min(kInputsAtOnce, cols.end - col);
    for (int64_t i = 0; i < inputs; ++i) {
      BH_RETURN_IF_ERROR(ReadCols(codes, col + i, of_rows, 4, words + i * of_rows.size()));
    }
    for (int64_t word = 0; word < of_rows.size(); ++word) {
      for (int position = 0; position < kWordCodes; ++position) {
        const int64_t row = (of_rows.begin + word) * kWordCodes + kAwqOrder[position] - rows.begin;
        if (row < 0 || row >= rows.size()) continue;
        uint8_t* const out = staging.codes + row * cols.size() + col - cols.begin;
        for (int64_t i = 0; i < inputs; ++i) {
          out[i] = static_cast<uint8_t>((words[i * of_rows.size() + word] >> (4 * position)) & 0xF);
        }
      }
    }
  }
  return absl::OkStatus();
}

// A GPTQ word has WordCodes() inputs of one output.
absl::Status QuantizedTensors::ReadGptqCodes(Range rows, Range cols, const Staging& staging) const {
  const int word_codes = WordCodes();
  for (int64_t word = WordsOf(cols).begin; word < WordsOf(cols).end; ++word) {
    BH_RETURN_IF_ERROR(ReadCols(codes, word, rows, 4, staging.words));
    const int64_t first = std::max(word * word_codes, cols.begin);
    const auto count = static_cast<size_t>(std::min((word + 1) * word_codes, cols.end) - first);
    const auto skipped = static_cast<int>(first % word_codes);
    for (int64_t row = 0; row < rows.size(); ++row) {
      const uint32_t left = staging.words[row] >> (config.bits * skipped);
      const uint64_t bytes = config.bits == 8 ? left : EightCodes(left);
      std::memcpy(staging.codes + row * cols.size() + first - cols.begin, &bytes, count);
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizedTensors::ReadByInput(Range rows, Range cols, const Staging& staging) const {
  auto* const halves = reinterpret_cast<uint16_t*>(staging.file_scales);
  const Range words = WordsOf(rows);
  std::array<int, kWordCodes> awq_position{};
  for (int j = 0; j < kWordCodes; ++j) awq_position[kAwqOrder[j]] = j;
  // GPTQ v1 subtracted 1 from each zero on the whole word: a zero of 0 borrows from the next.
  const uint32_t ones = config.bits == 8 ? 0x01010101 : 0x11111111;
  const uint32_t added = is_awq() || config.zeros_as_stored ? 0 : ones;
  // The zero of output `row` in words read from WordsOf(rows) on.
  const auto zero_of = [&](int64_t row) {
    const uint32_t word = staging.words[row / WordCodes() - words.begin] + added;
    const auto i = static_cast<int>(row % WordCodes());
    return word >> (config.bits * (is_awq() ? awq_position[i] : i)) & ((1U << config.bits) - 1);
  };
  BH_RETURN_IF_ERROR(is_awq() ? ReadAwqCodes(rows, cols, staging)
                              : ReadGptqCodes(rows, cols, staging));
  const Range groups = GroupsOf(cols);
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    BH_RETURN_IF_ERROR(ReadCols(zeros, FileGroup(group), words, 4, staging.words));
    BH_RETURN_IF_ERROR(ReadCols(scales, FileGroup(group), rows, 2, halves));
    for (int64_t row = 0; row < rows.size(); ++row) {
      const int64_t at = row * groups.size() + group - groups.begin;
      const uint32_t zero = zero_of(rows.begin + row);
      if (config.bits == 8 && zero != 128) {
        return absl::DataLossError(absl::StrCat("the zero of output ", rows.begin + row,
                                                " and group ", group, " is ", zero,
                                                "; with 8 bits and sym it must be 128"));
      }
      if (!IsFinite(halves[row], *scales.entry->dtype)) {
        return NoFiniteScale(rows.begin + row, group);
      }
      staging.zeros[at] = static_cast<uint8_t>(zero);
      staging.scales[at] = halves[row];
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizedTensors::ReadCodesByOutput(Range rows, Range cols,
                                                 const Staging& staging) const {
  const int64_t count = cols.size();
  if (config.bits == 8) {
    BH_RETURN_IF_ERROR(ReadMatrix(codes, rows, cols, inputs, staging.codes));
    uint8_t* const end = staging.codes + rows.size() * count;
    if (config.method == Method::kIntQuantized) {
      for (uint8_t* code = staging.codes; code < end; ++code) *code ^= 0x80;  // + 128
    }
    if (is_fp8() && std::any_of(staging.codes, end, IsNan)) {
      return absl::DataLossError("a weight is NaN");
    }
    return absl::OkStatus();
  }
  const Range bytes{cols.begin / 2, (cols.end + 1) / 2};
  BH_RETURN_IF_ERROR(ReadMatrix(codes, rows, bytes, CeilDiv(inputs, kWordCodes) * 4, staging.raw));
  const int64_t skipped = cols.begin % 2;
  for (int64_t row = 0; row < rows.size(); ++row) {
    const uint8_t* from = staging.raw + row * bytes.size();
    uint8_t* to = staging.codes + row * count;
    int64_t i = 0;
    for (; skipped == 0 && i + kWordCodes <= count; i += kWordCodes) {
      uint32_t word;
      std::memcpy(&word, from + i / 2, sizeof(word));
      const uint64_t eight = EightCodes(word);
      std::memcpy(to + i, &eight, sizeof(eight));
    }
    for (; i < count; ++i) {
      to[i] = static_cast<uint8_t>(from[(i + skipped) / 2] >> (i + skipped) % 2 * 4 & 0xF);
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizedTensors::ReadZerosByOutput(Range rows, Range cols,
                                                 const Staging& staging) const {
  const Range groups = GroupsOf(cols);
  const Range file_groups = FileGroupsOf(cols);
  if (zeros.entry == nullptr) {
    const int zero = config.bits == 8 ? 128 : 8;  // unused with fp4
    std::fill_n(staging.zeros, rows.size() * groups.size(), static_cast<uint8_t>(zero));
    return absl::OkStatus();
  }
  for (int64_t word = WordsOf(rows).begin; word < WordsOf(rows).end; ++word) {
    BH_RETURN_IF_ERROR(ReadCols(zeros, word, file_groups, 4, staging.words));
    const int64_t end = std::min((word + 1) * kWordCodes, rows.end);
    for (int64_t row = std::max(word * kWordCodes, rows.begin); row < end; ++row) {
      uint8_t* to = staging.zeros + (row - rows.begin) * groups.size();
      for (int64_t group = groups.begin; group < groups.end; ++group) {
        const uint32_t eight = staging.words[FileGroup(group) - file_groups.begin];
        *to++ = static_cast<uint8_t>(eight >> row % kWordCodes * 4 & 0xF);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizedTensors::ReadScalesByOutput(Range rows, Range cols,
                                                  const Staging& staging) const {
  const Range groups = GroupsOf(cols);
  const Range file_groups = FileGroupsOf(cols);
  const Range scale_rows = ScaleRowsOf(rows);
  const std::string& format = scales.entry->format;
  const bool is_e4m3 = format == "F8_E4M3";
  const int width = is_e4m3 || format == "U8" ? 1 : format == "F32" ? 4 : 2;
  const int64_t of_row = config.group_size == 0 ? 1 : CeilDiv(inputs, config.group_size);
  BH_RETURN_IF_ERROR(ReadMatrix(scales, scale_rows,
                                {file_groups.begin * width, file_groups.end * width},
                                of_row * width, staging.file_scales));
  const auto* bytes = reinterpret_cast<const uint8_t*>(staging.file_scales);
  const auto* halves = reinterpret_cast<const uint16_t*>(bytes);
  const auto* floats = reinterpret_cast<const float*>(bytes);
  if (width == 1) {
    const int64_t count = scale_rows.size() * file_groups.size();
    const bool has_nan = is_e4m3 ? std::any_of(bytes, bytes + count, IsNan)
                                 : std::memchr(bytes, kE8m0Nan, count) != nullptr;
    if (has_nan) return absl::DataLossError("a scale is NaN");
    const int largest = is_e4m3 ? 0 : *std::max_element(bytes, bytes + count);
    if (largest > kLargestE8m0) {
      return absl::DataLossError(absl::StrCat("a scale is 2^", largest - 127, "; at most 2^",
                                              kLargestE8m0 - 127, " keeps weights finite"));
    }
  }
  if (is_e4m3) std::fill_n(staging.factors, rows.size(), factor);
  int64_t to = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t from = ScaleRowsOf({row, row + 1}).begin - scale_rows.begin;
    for (int64_t group = groups.begin; group < groups.end; ++group, ++to) {
      const int64_t at = from * file_groups.size() + FileGroup(group) - file_groups.begin;
      if (!is_fp8()) {
        if (width == 2 && !IsFinite(halves[at], *scales.entry->dtype)) {
          return NoFiniteScale(row, group);
        }
        staging.scales[to] = width == 1 ? bytes[at] : halves[at];
      } else if (width == 4) {
        staging.f32_scales[to] = floats[at];
      } else {
        WidenToF32(reinterpret_cast<const std::byte*>(halves + at), *scales.entry->dtype, 1,
                   staging.f32_scales + to);
      }
      if (is_fp8() && !(std::abs(staging.f32_scales[to]) < kEndOfFp8Scales)) {
        return absl::DataLossError(absl::StrCat("a scale of fp8 weights is ",
                                                staging.f32_scales[to],
                                                "; its magnitude must be below ", kEndOfFp8Scales));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizedTensors::ReadByOutput(Range rows, Range cols, const Staging& staging) const {
  BH_RETURN_IF_ERROR(ReadCodesByOutput(rows, cols, staging));
  BH_RETURN_IF_ERROR(ReadZerosByOutput(rows, cols, staging));
  return ReadScalesByOutput(rows, cols, staging);
}

absl::StatusOr<QuantizedRows> QuantizedTensors::ReadRows(Range rows, Range cols,
                                                         std::byte* memory) const {
  const Staging staging = LayOut(memory, rows.size(), cols);
  BH_RETURN_IF_ERROR(is_by_output() ? ReadByOutput(rows, cols, staging)
                                    : ReadByInput(rows, cols, staging));
  return QuantizedRows{rows.size(),
                       staging.codes,
                       staging.scales,
                       staging.zeros,
                       is_fp8() ? staging.f32_scales : nullptr,
                       factor != 0 ? staging.factors : nullptr};
}

}  // namespace bulkhead
