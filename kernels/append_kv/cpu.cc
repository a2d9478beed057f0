#include <algorithm>

#include "base/arithmetic.h"
#include "kernels/append_kv/op.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {
namespace {

// Columns of a latent vector that one thread writes.
constexpr int kLatentColumns = 64;
constexpr int kLineFloats = 16;  // floats of a cache line

}  // namespace

// Threads split the KV heads, so that padding rows, which share a place in block 0, never race. A
// latent cache has one head: its columns are split, in formats that do not need the whole vector.
void CpuBackend::AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                          const KvLayerView& kv) {
  if (!HasHeads(index, heads, qkv)) return;
  const KvGeometry& g = kv.geometry;
  CheckCache(g, heads);
  const int d = heads.head_dim;
  const int cols = g.latent && !IsQuantized(g.format) ? std::min(kLatentColumns, d) : d;
  const int64_t parts = CeilDiv(d, cols);  // parts of a head
  const int64_t elements = int64_t{g.num_parts()} * index.num_tokens * heads.num_kv_heads * d;
  const auto append = BH_OF_ISA(isa_, AppendToken);
  const auto append_part = [&](int t, int64_t head, int begin) {
    const float* key = qkv.F32(t) + (heads.num_heads + head) * d + begin;
    const float* value = key + int64_t{heads.num_kv_heads} * d;
    for (int i = 0; i < std::min(cols, d - begin); i += kLineFloats) {
      __builtin_prefetch(key + qkv.row_stride() + i);
      __builtin_prefetch(value + qkv.row_stride() + i);
    }
    const int64_t row = index.seq_slot[index.token_seq[t]];
    const int32_t* blocks = index.block_tables + row * index.block_table_stride;
    const int64_t block = blocks[index.position[t] / g.block_tokens];
    const int64_t offset = index.position[t] % g.block_tokens;
    append(key, value, std::min(cols, d - begin), g.format,
           {kv.Keys(block, head) + begin * g.KeysBytes() / d,
            g.latent ? nullptr : kv.Values(block, head), kv.Scaling(block, head), g.block_tokens,
            offset, kv.KeyScale(head), kv.ValueScale(head)});
  };
  pool_->ParallelForWork(heads.num_kv_heads * parts, elements,
                         [&](int, int64_t begin, int64_t end) {
                           for (int t = 0; t < index.num_tokens; ++t) {
                             for (int64_t i = begin; i < end; ++i) {
                               append_part(t, i / parts, static_cast<int>(i % parts) * cols);
                             }
                           }
                         });
}

}  // namespace bulkhead
