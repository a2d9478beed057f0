#include "memory/kv_format_name.h"

#include "memory/check.h"

namespace bulkhead {

absl::string_view KvFormatName(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return DTypeName(DType::kF32);
    case KvFormat::kBF16:
      return DTypeName(DType::kBF16);
    case KvFormat::kF16:
      return DTypeName(DType::kF16);
  }
  return "?";
}

absl::StatusOr<KvFormat> ParseKvFormat(absl::string_view name) {
  const absl::StatusOr<DType> dtype = ParseDType(name);
  if (!dtype.ok()) return dtype.status();
  return KvFormatOf(*dtype);
}

KvFormat KvFormatOf(DType dtype) {
  BH_CHECK(dtype != DType::kI32);
  return dtype == DType::kF32    ? KvFormat::kF32
         : dtype == DType::kBF16 ? KvFormat::kBF16
                                 : KvFormat::kF16;
}

}  // namespace bulkhead
