#include "shard/quantized_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int kWordCodes = 8;
constexpr std::array<int, kWordCodes> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int64_t kAlign = 64;
constexpr int64_t kInputsAtOnce =
    kWordCodes;  // so that their words need no more than a row of GPTQ

// Words that hold outputs (or inputs) [begin, end).
Range WordsOf(Range range) {
  return {range.begin / kWordCodes, (range.end + kWordCodes - 1) / kWordCodes};
}

// Columns [cols.begin, cols.end) of row `row` of a tensor of elements of `width` bytes.
absl::Status ReadCols(const LocatedTensor& tensor, int64_t row, Range cols, int64_t width,
                      void* out) {
  const int64_t row_cols = tensor.entry->shape[1];
  BH_CHECK(row < tensor.entry->shape[0] && cols.end <= row_cols);
  return tensor.file->ReadAt(tensor.entry->begin + (row * row_cols + cols.begin) * width,
                             cols.size() * width, static_cast<std::byte*>(out));
}

// What ReadRows lays out in its staging memory.
struct Staging {
  uint32_t* words;   // of one row of a tensor, or of AWQ words of kInputsAtOnce rows
  uint16_t* halves;  // likewise
  uint8_t* codes;
  uint16_t* scales;
  uint8_t* zeros;
  int64_t bytes;
};

Staging LayOut(std::byte* memory, int64_t rows, int64_t cols, int64_t groups) {
  int64_t used = 0;
  const auto next = [&](int64_t bytes) {
    std::byte* at = memory + used;
    used += RoundUp(bytes, kAlign);
    return at;
  };
  Staging staging{};
  staging.words = reinterpret_cast<uint32_t*>(next((rows + 2 * kWordCodes) * 4));
  staging.halves = reinterpret_cast<uint16_t*>(next(rows * 2));
  staging.codes = reinterpret_cast<uint8_t*>(next(rows * cols));
  staging.scales = reinterpret_cast<uint16_t*>(next(rows * groups * 2));
  staging.zeros = reinterpret_cast<uint8_t*>(next(rows * groups));
  staging.bytes = used;
  return staging;
}

// codes [rows, cols]. A word of AWQ has one input of eight outputs; `words` holds those of
// kInputsAtOnce inputs.
absl::Status ReadAwqCodes(const LocatedTensor& qweight, Range rows, Range cols, uint32_t* words,
                          uint8_t* codes) {
  const Range of_rows = WordsOf(rows);
  for (int64_t col = cols.begin; col < cols.end; col += kInputsAtOnce) {
    const int64_t inputs = std::min(kInputsAtOnce, cols.end - col);
    for (int64_t i = 0; i < inputs; ++i) {
      BH_RETURN_IF_ERROR(ReadCols(qweight, col + i, of_rows, 4, words + i * of_rows.size()));
    }
    for (int64_t word = 0; word < of_rows.size(); ++word) {
      for (int position = 0; position < kWordCodes; ++position) {
        const int64_t row = (of_rows.begin + word) * kWordCodes + kAwqOrder[position] - rows.begin;
        if (row < 0 || row >= rows.size()) continue;
        uint8_t* const out = codes + row * cols.size() + col - cols.begin;
        for (int64_t i = 0; i < inputs; ++i) {
          out[i] = static_cast<uint8_t>((words[i * of_rows.size() + word] >> (4 * position)) & 0xF);
        }
      }
    }
  }
  return absl::OkStatus();
}

// codes [rows, cols]. A word of GPTQ has eight inputs of one output.
absl::Status ReadGptqCodes(const LocatedTensor& qweight, Range rows, Range cols, uint32_t* words,
                           uint8_t* codes) {
  for (int64_t word = WordsOf(cols).begin; word < WordsOf(cols).end; ++word) {
    BH_RETURN_IF_ERROR(ReadCols(qweight, word, rows, 4, words));
    const int64_t first = std::max(word * kWordCodes, cols.begin);
    const auto count = static_cast<size_t>(std::min((word + 1) * kWordCodes, cols.end) - first);
    const auto skipped = static_cast<int>(first % kWordCodes);
    for (int64_t row = 0; row < rows.size(); ++row) {
      uint64_t eight = words[row] >> (4 * skipped);  // nibbles, which become bytes
      eight = (eight | eight << 16) & 0x0000FFFF0000FFFF;
      eight = (eight | eight << 8) & 0x00FF00FF00FF00FF;
      eight = (eight | eight << 4) & 0x0F0F0F0F0F0F0F0F;
      std::memcpy(codes + row * cols.size() + first - cols.begin, &eight, count);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Range QuantizedTensors::GroupsOf(Range cols) const {
  if (config.act_order) return {0, inputs / config.group_size};
  return {cols.begin / config.group_size, (cols.end - 1) / config.group_size + 1};
}

int64_t QuantizedTensors::StagingBytes(Range cols, int64_t rows) const {
  return LayOut(nullptr, rows, cols.size(), GroupsOf(cols).size()).bytes;
}

int64_t QuantizedTensors::ReadBytes(Range cols, int64_t rows) const {
  return rows * cols.size() / 2 + GroupsOf(cols).size() * rows * 5 / 2;
}

absl::StatusOr<QuantizedRows> QuantizedTensors::ReadRows(Range rows, Range cols,
                                                         std::byte* memory) const {
  const Range groups = GroupsOf(cols);
  const Staging staging = LayOut(memory, rows.size(), cols.size(), groups.size());
  const Range words = WordsOf(rows);
  // The code of output `row` in words read from WordsOf(rows) on.
  const auto code_of = [&](int64_t row, int position_of_first) {
    const uint32_t word = staging.words[row / kWordCodes - words.begin];
    return static_cast<uint8_t>((word >> (4 * position_of_first)) & 0xF);
  };
  std::array<int, kWordCodes> awq_position{};
  for (int j = 0; j < kWordCodes; ++j) awq_position[kAwqOrder[j]] = j;
  const auto position = [&](int64_t row) {
    const auto i = static_cast<int>(row % kWordCodes);
    return is_awq() ? awq_position[i] : i;
  };
  BH_RETURN_IF_ERROR(is_awq() ? ReadAwqCodes(qweight, rows, cols, staging.words, staging.codes)
                              : ReadGptqCodes(qweight, rows, cols, staging.words, staging.codes));
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    BH_RETURN_IF_ERROR(ReadCols(qzeros, group, words, 4, staging.words));
    BH_RETURN_IF_ERROR(ReadCols(scales, group, rows, 2, staging.halves));
    for (int64_t row = 0; row < rows.size(); ++row) {
      const int64_t at = row * groups.size() + group - groups.begin;
      const uint8_t zero = code_of(rows.begin + row, position(rows.begin + row));
      staging.zeros[at] = static_cast<uint8_t>(is_awq() ? zero : zero + 1);
      staging.scales[at] = staging.halves[row];
    }
  }
  return QuantizedRows{rows.size(), staging.codes, staging.scales, staging.zeros};
}

absl::StatusOr<std::vector<int32_t>> QuantizedTensors::ReadGroupIndex(Range cols) const {
  if (g_idx.entry == nullptr) return std::vector<int32_t>();
  std::vector<int32_t> index(cols.size());
  BH_RETURN_IF_ERROR(g_idx.file->ReadAt(g_idx.entry->begin + cols.begin * 4, cols.size() * 4,
                                        reinterpret_cast<std::byte*>(index.data())));
  const int64_t groups = inputs / config.group_size;
  for (int64_t i = 0; i < cols.size(); ++i) {
    const int64_t input = cols.begin + i;
    const bool wrong = config.act_order ? index[i] < 0 || index[i] >= groups
                                        : index[i] != input / config.group_size;
    if (!wrong) continue;
    return absl::DataLossError(absl::StrCat(
        g_idx.file->path(), ": tensor '", g_idx.entry->name, "' puts input ", input, " in group ",
        index[i],
        config.act_order ? absl::StrCat("; there are ", groups)
                         : ", out of order, and quantization_config.desc_act is false"));
  }
  if (!config.act_order) index.clear();
  return index;
}

bool IsHeldQuantized(const TensorRow& row, const ModelConfig& config) {
  return config.quantization.method != QuantizationConfig::Method::kNone &&
         row.held_as == HeldAs::kLayerMatrix;
}

std::vector<std::string> QuantizedNamesOf(const TensorRow& row, const ModelConfig& config) {
  const std::string weight = row.Name();
  const absl::string_view stem = absl::StripSuffix(weight, "weight");
  std::vector<std::string> names;
  for (const char* part : {"qweight", "qzeros", "scales", "g_idx"}) {
    const bool is_index = absl::string_view(part) == "g_idx";
    if (is_index && config.quantization.method == QuantizationConfig::Method::kAwq) continue;
    names.push_back(absl::StrCat(stem, part));
  }
  return names;
}

absl::StatusOr<QuantizedTensors> FindQuantized(const TensorIndex& index, const TensorRow& row,
                                               const ModelConfig& config) {
  const std::vector<std::string> names = QuantizedNamesOf(row, config);
  const int64_t outputs = row.FileSize();
  const int64_t inputs = row.cols;
  QuantizedTensors tensors;
  tensors.config = config.quantization;
  tensors.outputs = outputs;
  tensors.inputs = inputs;
  const int64_t group = tensors.config.group_size;
  if (inputs % group != 0 || outputs % kWordCodes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", names[0], "' would be [", outputs, ", ",
                                                   inputs, "], which groups of ", group,
                                                   " inputs and words of 8 outputs do not divide"));
  }
  const std::vector<int64_t> codes = tensors.is_awq()
                                         ? std::vector<int64_t>{inputs, outputs / kWordCodes}
                                         : std::vector<int64_t>{inputs / kWordCodes, outputs};
  BH_ASSIGN_OR_RETURN(tensors.qweight, index.FindTensor(names[0], codes, "I32"));
  BH_ASSIGN_OR_RETURN(tensors.qzeros,
                      index.FindTensor(names[1], {inputs / group, outputs / kWordCodes}, "I32"));
  BH_ASSIGN_OR_RETURN(tensors.scales, index.FindTensor(names[2], {inputs / group, outputs}, "F16"));
  if (tensors.is_awq()) return tensors;
  absl::StatusOr<LocatedTensor> g_idx = index.FindTensor(names[3], {inputs}, "I32");
  if (g_idx.ok()) {
    tensors.g_idx = *g_idx;
  } else if (!absl::IsNotFound(g_idx.status()) || tensors.config.act_order) {
    return g_idx.status();
  }
  return tensors;
}

}  // namespace bulkhead
