// Quantised keys and values as plain code; memory/kv_cache.h has the rules.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace bulkhead {

struct KvScaling {
  uint16_t scale = 0;  // f16
  uint16_t zero = 0;   // f16
};

// Writes a code in [0, levels] for each number.
KvScaling QuantizeKv(absl::Span<const float> numbers, int levels, absl::Span<uint8_t> codes);

float DequantizeKv(int code, KvScaling scaling);

}  // namespace bulkhead
