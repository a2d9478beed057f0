// Names of KV cache formats.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "memory/kv_format.h"
#include "memory/matrix.h"

namespace bulkhead {

// "float32", "bfloat16", "float16", "int8", "int4", "fp8".
absl::string_view KvFormatName(KvFormat format);

// Every spelling of ParseDType, and int8, int4, fp8 and fp8_e4m3. INVALID_ARGUMENT otherwise.
absl::StatusOr<KvFormat> ParseKvFormat(absl::string_view name);

// The format that stores `dtype` unchanged; f32, bf16 or f16.
KvFormat KvFormatOf(DType dtype);

}  // namespace bulkhead
