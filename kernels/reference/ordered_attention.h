// Attention of one query head over one KV head, in the order that the promise of equal bits fixes.
#pragma once

#include "kernels/reference/sequence_cache.h"

namespace bulkhead::ordered {

struct Query {
  const float* q = nullptr;  // [d]
  int head_dim = 0;          // d
  int kv_head = 0;
  int first = 0;  // visible positions: [first, last]
  int last = 0;
  float scale = 1;
};

// out [d].
void Attend(const SequenceCache& cache, const Query& query, float* out);

}  // namespace bulkhead::ordered
