// The kernel that writes one token of one head into the cache.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"
#include "memory/kv_format.h"

namespace bulkhead {

// Token `offset` in a block of one head; layout: memory/kv_cache.h.
struct KvPlace {
  void* keys = nullptr;
  void* values = nullptr;       // null for a latent cache
  uint16_t* scaling = nullptr;  // int8 and int4
  int64_t block_tokens = 0;
  int64_t offset = 0;
  float key_scale = 1;  // fp8
  float value_scale = 1;
};

// key [d], value [d] if there are values.
BH_PER_ISA(void AppendToken(const float* key, const float* value, int head_dim, KvFormat format,
                            const KvPlace& place))

}  // namespace bulkhead
