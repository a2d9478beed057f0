#include "kernels/reference/reference_backend.h"
#include "kernels/reference/sequence_cache.h"

namespace bulkhead {

void ReferenceBackend::AppendKv(const StepIndex& index, const HeadLayout& heads,
                                ConstMatrixView qkv, const KvLayerView& kv) {
  const int d = heads.head_dim;
  for (int t = 0; t < index.num_tokens; ++t) {
    const SequenceCache cache(index, index.token_seq[t], kv);
    for (int head = 0; head < heads.num_kv_heads; ++head) {
      const float* key = qkv.F32(t) + int64_t{heads.num_heads + head} * d;
      const float* value = key + int64_t{heads.num_kv_heads} * d;
      cache.Put(head, index.position[t], key, value);
    }
  }
}

}  // namespace bulkhead
