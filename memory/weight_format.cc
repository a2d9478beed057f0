#include "memory/weight_format.h"

namespace bulkhead {

absl::string_view WeightFormatName(WeightFormat format) {
  if (format == WeightFormat::kInt8) return "int8";
  if (format == WeightFormat::kInt4) return "int4";
  if (format == WeightFormat::kMxfp4) return "mxfp4";
  if (format == WeightFormat::kNvfp4) return "nvfp4";
  if (format == WeightFormat::kFp8) return "fp8";
  return DTypeName(DTypeOf(format));
}

WeightFormat WeightFormatOf(DType dtype) {
  BH_CHECK(dtype != DType::kI32);
  return dtype == DType::kF32    ? WeightFormat::kF32
         : dtype == DType::kBF16 ? WeightFormat::kBF16
                                 : WeightFormat::kF16;
}

DType DTypeOf(WeightFormat format) {
  BH_CHECK(!IsQuantized(format));
  return format == WeightFormat::kF32    ? DType::kF32
         : format == WeightFormat::kBF16 ? DType::kBF16
                                         : DType::kF16;
}

}  // namespace bulkhead
