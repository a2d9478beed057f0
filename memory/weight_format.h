// WeightFormat: the storage format of a weight matrix; memory/linear.h defines the codes.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "memory/matrix.h"

namespace bulkhead {

enum class WeightFormat : uint8_t { kF32, kBF16, kF16, kInt8, kInt4 };

// Codes, with a scale and a zero per output and group of inputs.
constexpr bool IsQuantized(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

constexpr int WeightBits(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBF16:
    case WeightFormat::kF16:
      return 16;
    case WeightFormat::kInt8:
      return 8;
    case WeightFormat::kInt4:
      return 4;
  }
  return 0;
}

// "float32", "bfloat16", "float16", "int8", "int4".
absl::string_view WeightFormatName(WeightFormat format);

// The format that stores `dtype` unchanged (f32, bf16, f16), and back.
WeightFormat WeightFormatOf(DType dtype);
DType DTypeOf(WeightFormat format);

}  // namespace bulkhead
