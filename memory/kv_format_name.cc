#include "memory/kv_format_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace bulkhead {

absl::string_view KvFormatName(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return DTypeName(DType::kF32);
    case KvFormat::kBF16:
      return DTypeName(DType::kBF16);
    case KvFormat::kF16:
      return DTypeName(DType::kF16);
    case KvFormat::kInt8:
      return "int8";
    case KvFormat::kInt4:
      return "int4";
    case KvFormat::kFP8:
      return "fp8";
  }
  return "?";
}

absl::StatusOr<KvFormat> ParseKvFormat(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (lower == "int8") return KvFormat::kInt8;
  if (lower == "int4") return KvFormat::kInt4;
  if (lower == "fp8" || lower == "fp8_e4m3") return KvFormat::kFP8;
  const absl::StatusOr<DType> dtype = ParseDType(name);
  if (dtype.ok()) return KvFormatOf(*dtype);
  return absl::InvalidArgumentError(
      absl::StrCat("'", name,
                   "' is not a format of the KV cache; known are float32, bfloat16, float16, int8, "
                   "int4 and fp8 (e4m3)"));
}

KvFormat KvFormatOf(DType dtype) {
  BH_CHECK(dtype != DType::kI32);
  return dtype == DType::kF32    ? KvFormat::kF32
         : dtype == DType::kBF16 ? KvFormat::kBF16
                                 : KvFormat::kF16;
}

}  // namespace bulkhead
