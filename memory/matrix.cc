#include "memory/matrix.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kI32:
      return "int32";
  }
  return "?";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (lower == "float32" || lower == "f32" || lower == "fp32" || lower == "float")
    return DType::kF32;
  if (lower == "bfloat16" || lower == "bf16") return DType::kBF16;
  if (lower == "float16" || lower == "f16" || lower == "fp16" || lower == "half")
    return DType::kF16;
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a number format; known are float32, bfloat16 and float16"));
}

}  // namespace bulkhead
