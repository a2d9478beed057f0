// KvFormat: how the numbers of the KV cache are stored; memory/kv_cache.h says what they mean.
// Plain: kernel sources, compiled once per instruction set, include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

enum class KvFormat : uint8_t { kF32, kBF16, kF16 };

static constexpr int KvElementBits(KvFormat format) { return format == KvFormat::kF32 ? 32 : 16; }

}  // namespace bulkhead
