// KvFormat: the storage format of the KV cache; memory/kv_cache.h defines the encoding. Plain C++:
// included by kernel sources that are compiled once per instruction set.
#pragma once

#include <stdint.h>

namespace bulkhead {

enum class KvFormat : uint8_t { kF32, kBF16, kF16, kInt8, kInt4, kFP8 };

static constexpr int KvElementBits(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return 32;
    case KvFormat::kBF16:
    case KvFormat::kF16:
      return 16;
    case KvFormat::kInt8:
    case KvFormat::kFP8:
      return 8;
    case KvFormat::kInt4:
      return 4;
  }
  return 0;
}

// Codes, with a scale and a zero per token and head. kFP8 has scales per head only.
static constexpr bool IsQuantized(KvFormat format) {
  return format == KvFormat::kInt8 || format == KvFormat::kInt4;
}

// Bytes per key or value of one head besides its elements: scale and zero, f16 each.
static constexpr int KvScalingBytes(KvFormat format) { return IsQuantized(format) ? 4 : 0; }

}  // namespace bulkhead
