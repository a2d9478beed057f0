#include "shard/dequantized_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/arithmetic.h"
#include "base/status.h"
#include "memory/fp4.h"
#include "memory/fp8.h"
#include "shard/widen.h"

namespace bulkhead {
namespace {

constexpr int64_t kAlign = 64;

// The value of each code; for integers before the zero is subtracted.
using Numbers = std::array<float, 256>;

Numbers E4m3Numbers() {
  Numbers numbers;
  for (int code = 0; code < 256; ++code) numbers[code] = F32OfE4m3(static_cast<uint8_t>(code));
  return numbers;
}

Numbers NumbersOf(const QuantizedTensors& tensors) {
  if (tensors.is_fp8()) return E4m3Numbers();
  Numbers numbers{};
  for (int code = 0; code < 256; ++code) {
    numbers[code] = tensors.is_fp4()
                        ? 0.5F * static_cast<float>(int{kFp4Steps[code % 16]} - int{kFp4Zero})
                        : static_cast<float>(code);
  }
  return numbers;
}

// scales [groups] of row `row`, as f32.
void WidenScales(const QuantizedTensors& tensors, const QuantizedRows& rows, int64_t row,
                 int64_t groups, float* scales) {
  const int64_t first = row * groups;
  if (rows.f32_scales != nullptr) {
    std::copy_n(rows.f32_scales + first, groups, scales);
  } else if (!tensors.is_fp4()) {
    WidenToF32(reinterpret_cast<const std::byte*>(rows.scales + first),
               *tensors.scales.entry->dtype, groups, scales);
  } else {
    for (int64_t group = 0; group < groups; ++group) {
      const int scale = rows.scales[first + group];
      scales[group] = rows.factors != nullptr
                          ? F32OfE4m3(static_cast<uint8_t>(scale)) * rows.factors[row]
                          : std::ldexp(1.0F, scale - 127);
    }
  }
}

// out [rows, cols]
absl::Status Dequantize(const QuantizedTensors& tensors, const QuantizedRows& rows, Range cols,
                        float* out) {
  const Numbers numbers = NumbersOf(tensors);
  const Range groups = tensors.GroupsOf(cols);
  BH_ASSIGN_OR_RETURN(std::vector<int32_t> group_of, tensors.ReadGroupIndex(cols));
  for (int64_t col = static_cast<int64_t>(group_of.size()); col < cols.size(); ++col) {
    const int64_t group = (cols.begin + col) / tensors.group_size - groups.begin;
    group_of.push_back(static_cast<int32_t>(group));
  }
  const bool has_zeros = !tensors.is_fp4() && !tensors.is_fp8();
  std::vector<float> scales(groups.size());
  for (int64_t row = 0; row < rows.rows; ++row) {
    WidenScales(tensors, rows, row, groups.size(), scales.data());
    const uint8_t* const codes = rows.codes + row * cols.size();
    const uint8_t* const zeros = rows.zeros + row * groups.size();
    for (int64_t col = 0; col < cols.size(); ++col) {
      const int32_t group = group_of[col];
      const float zero = has_zeros ? zeros[group] : 0.0F;
      *out++ = (numbers[codes[col]] - zero) * scales[group];
    }
  }
  return absl::OkStatus();
}

// The part of the file to read for `rows` and `cols` of the row's matrix.
struct FilePart {
  Range rows;
  Range cols;
  int64_t staging_bytes;  // for the codes; the numbers, twice, follow
  int64_t float_bytes;
};

FilePart FilePartOf(const QuantizedTensors& tensors, const TensorRow& row, Range rows, Range cols) {
  FilePart part{rows, cols, 0, RoundUp(rows.size() * cols.size() * 4, kAlign)};
  if (IsTransposedInCodes(row)) {
    part.rows = {row.file_input_begin + cols.begin, row.file_input_begin + cols.end};
    part.cols = rows;
  }
  part.staging_bytes = RoundUp(tensors.StagingBytes(part.cols, part.rows.size()), kAlign);
  return part;
}

}  // namespace

int64_t DequantizedStagingBytes(const QuantizedTensors& tensors, const TensorRow& row, Range rows,
                                Range cols) {
  const FilePart part = FilePartOf(tensors, row, rows, cols);
  return part.staging_bytes + 2 * part.float_bytes;
}

absl::StatusOr<ConstMatrixView> ReadDequantized(const QuantizedTensors& tensors,
                                                const TensorRow& row, Range rows, Range cols,
                                                std::byte* staging) {
  const FilePart part = FilePartOf(tensors, row, rows, cols);
  BH_ASSIGN_OR_RETURN(const QuantizedRows codes, tensors.ReadRows(part.rows, part.cols, staging));
  std::byte* const numbers = staging + part.staging_bytes;
  auto* const floats = reinterpret_cast<float*>(numbers);
  BH_RETURN_IF_ERROR(Dequantize(tensors, codes, part.cols, floats));
  if (!IsTransposedInCodes(row)) {
    return ConstMatrixView(numbers, DType::kF32, rows.size(), cols.size());
  }
  std::byte* const turned = numbers + part.float_bytes;
  auto* const to = reinterpret_cast<float*>(turned);
  for (int64_t col = 0; col < cols.size(); ++col) {
    for (int64_t i = 0; i < rows.size(); ++i) {
      to[i * cols.size() + col] = floats[col * rows.size() + i];
    }
  }
  return ConstMatrixView(turned, DType::kF32, rows.size(), cols.size());
}

}  // namespace bulkhead
