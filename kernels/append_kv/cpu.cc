#include "kernels/append_kv/op.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

// Threads split the KV heads, so that rows of padding, which share a place in block 0, never race.
void CpuBackend::AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                          const KvLayerView& kv) {
  if (!HasHeads(index, heads, qkv)) return;
  const KvGeometry& g = kv.geometry;
  CheckCache(g, heads);
  const int d = heads.head_dim;
  const int64_t elements = int64_t{2} * index.num_tokens * heads.num_kv_heads * d;
  const auto append = BH_OF_ISA(isa_, AppendToken);
  pool_->ParallelForWork(heads.num_kv_heads, elements, [&](int, int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      for (int t = 0; t < index.num_tokens; ++t) {
        const float* key = qkv.F32(t) + (heads.num_heads + head) * d;
        const float* value = key + int64_t{heads.num_kv_heads} * d;
        const int64_t row = index.seq_slot[index.token_seq[t]];
        const int32_t* blocks = index.block_tables + row * index.block_table_stride;
        const int64_t block = blocks[index.position[t] / g.block_tokens];
        const int64_t offset = index.position[t] % g.block_tokens;
        append(key, value, d, g.format,
               {kv.Keys(block, head), kv.Values(block, head), kv.Scaling(block, head),
                g.block_tokens, offset});
      }
    }
  });
}

}  // namespace bulkhead
