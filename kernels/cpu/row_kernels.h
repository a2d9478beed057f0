// The row kernels of one instruction set, as a table of functions over plain numbers. This header
// and its sources hold no inline code of other libraries: they are compiled once per instruction
// set.
#pragma once

#include <stdint.h>

#include "kernels/cpu/attention.h"

namespace bulkhead {

// Token `offset` of a block of one head; memory/kv_cache.h has the layout.
struct KvPlace {
  void* keys = nullptr;
  void* values = nullptr;
  uint16_t* scaling = nullptr;  // int8 and int4
  int64_t block_tokens = 0;
  int64_t offset = 0;
};

struct RowKernels {
  // out_i = (x_i * scale) * weight_i, scale = 1 / sqrt(mean(x^2) + epsilon); out may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t size, float* out);
  // One head [d] in place; rope [d]: d/2 cosines, d/2 sines.
  void (*rope)(const float* rope, int head_dim, float* x);
  // out_i = gate_i / (1 + exp(-gate_i)) * up_i, for any gate
  void (*swiglu)(const float* gate, const float* up, int64_t size, float* out);
  // One token of one head: key [d] and value [d].
  void (*append)(const float* key, const float* value, int head_dim, KvFormat format,
                 const KvPlace& place);
  // See attention.h.
  void (*attend)(const AttentionCall& call, const AttentionUnit& unit, float* scratch);
  void (*merge)(const AttentionCall& call, const AttentionUnit& unit);
};

namespace plain {
extern const RowKernels kRowKernels;
}
namespace avx2 {
extern const RowKernels kRowKernels;
}
namespace avx512 {
extern const RowKernels kRowKernels;
}

}  // namespace bulkhead
