// WeightFormat: the storage format of a weight matrix; memory/linear.h defines the codes.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "memory/matrix.h"

namespace bulkhead {

enum class WeightFormat : uint8_t { kF32, kBF16, kF16, kInt8, kInt4, kMxfp4, kNvfp4, kFp8 };

// Codes are E2M1 (memory/fp4.h), with a scale per output and group.
constexpr bool IsFp4(WeightFormat format) {
  return format == WeightFormat::kMxfp4 || format == WeightFormat::kNvfp4;
}

// Codes, with a scale and a zero per output and group of inputs.
constexpr bool IsQuantized(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4 || IsFp4(format) ||
         format == WeightFormat::kFp8;
}

inline constexpr WeightFormat kQuantizedFormats[] = {WeightFormat::kInt8, WeightFormat::kInt4,
                                                     WeightFormat::kMxfp4, WeightFormat::kNvfp4,
                                                     WeightFormat::kFp8};

// Products can be computed in integers (ActivationDType::kInt8).
constexpr bool HasIntegerCodes(WeightFormat format) {
  return IsQuantized(format) && format != WeightFormat::kFp8;
}

// The number format of a quantised weight's scales, each in the low bits of 32. kF16, kBF16: for
// kInt8 and kInt4. kE8M0 (kMxfp4): 8 bits e, the scale 2^(e - 127); 255 is NaN. kE4M3 (kNvfp4): the
// scale is that number times an f32 factor that an output has for all its groups. kF32: for kFp8.
enum class ScaleFormat : uint8_t { kF16, kBF16, kE8M0, kE4M3, kF32 };

constexpr int WeightBits(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBF16:
    case WeightFormat::kF16:
      return 16;
    case WeightFormat::kInt8:
    case WeightFormat::kFp8:
      return 8;
    case WeightFormat::kInt4:
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return 4;
  }
  return 0;
}

// "float32", "bfloat16", "float16", "int8", "int4", "mxfp4", "nvfp4", "fp8".
absl::string_view WeightFormatName(WeightFormat format);

// The format that stores `dtype` unchanged (f32, bf16, f16), and back.
WeightFormat WeightFormatOf(DType dtype);
DType DTypeOf(WeightFormat format);

}  // namespace bulkhead
