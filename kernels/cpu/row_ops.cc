#include "kernels/cpu/row_ops.h"

#include <algorithm>
#include <atomic>

#include "base/arithmetic.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/reference/exp_constants.h"

namespace bulkhead {
namespace {

constexpr int64_t kAlignBytes = 64;

constexpr int64_t kSwiGluColumns = 512;

const RowKernels& KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return plain::kRowKernels;
    case Isa::kAvx2:
      return avx2::kRowKernels;
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return avx512::kRowKernels;
  }
  return plain::kRowKernels;
}

// Whether there is anything to do: a rank may own no head at all.
bool HasHeads(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv) {
  if (index.num_tokens == 0 || heads.num_heads + heads.num_kv_heads == 0) return false;
  BH_CHECK(qkv.rows() == index.num_tokens);
  BH_CHECK(qkv.cols() == int64_t{heads.num_heads + 2 * heads.num_kv_heads} * heads.head_dim);
  return true;
}

void CheckCache(const KvGeometry& geometry, const HeadLayout& heads) {
  BH_CHECK(geometry.kv_heads == heads.num_kv_heads && geometry.head_dim == heads.head_dim);
  // Whole vectors of tokens, and whole blocks in a chunk.
  BH_CHECK(geometry.block_tokens % kAttentionLanes == 0 &&
           kAttentionChunk % geometry.block_tokens == 0);
}

// One tile for one KV head.
AttentionUnit UnitOf(const AttentionUnit& tile, const HeadLayout& heads, int kv_head) {
  const HeadRange range = HeadsOf(heads, kv_head);
  AttentionUnit unit = tile;
  unit.kv_head = kv_head;
  unit.first_head = range.first;
  unit.num_heads = range.count;
  return unit;
}

int64_t Products(absl::Span<const AttentionUnit> tiles, const HeadLayout& heads) {
  int64_t rows = 0;
  for (const AttentionUnit& tile : tiles) {
    rows += int64_t{tile.num_tokens} * (tile.chunk_end - tile.chunk_begin);
  }
  return rows * kAttentionChunk * heads.num_heads * heads.head_dim;
}

// visit(thread, tile, kv head) for all of them, each thread taking the next when it is done with
// one.
template <typename Visit>
void ForUnits(ThreadPool& pool, absl::Span<const AttentionUnit> tiles, const HeadLayout& heads,
              const Visit& visit) {
  const int64_t count = static_cast<int64_t>(tiles.size()) * heads.num_kv_heads;
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      const AttentionUnit unit =
          UnitOf(tiles[i / heads.num_kv_heads], heads, static_cast<int>(i % heads.num_kv_heads));
      if (unit.num_heads > 0) visit(thread, unit);
    }
  };
  pool.ParallelForWork(pool.num_threads(), Products(tiles, heads),
                       [&](int thread, int64_t, int64_t) { work(thread); });
}

}  // namespace

RowOps::RowOps(ThreadPool& pool, Isa isa) : pool_(pool), kernels_(KernelsFor(isa)) {}

int64_t RowOps::WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) {
  const AttentionSizes sizes(limits, heads);
  return RoundUp(sizes.max_tiles * int64_t{sizeof(AttentionUnit)}, kAlignBytes) +
         (sizes.scratch_floats * kMaxThreads + sizes.SlotFloats(heads)) * int64_t{sizeof(float)};
}

void RowOps::SetWorkspace(std::byte* workspace, const StepLimits& limits, const HeadLayout& heads) {
  workspace_ = workspace;
  limits_ = limits;
  heads_ = heads;
}

void RowOps::RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) {
  if (x.empty()) return;
  BH_CHECK(weight.cols() == x.cols() && out.cols() == x.cols() && out.rows() == x.rows());
  pool_.ParallelForWork(x.rows(), x.rows() * x.cols(), [&](int, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.rms_norm(x.F32(t), weight.F32(), epsilon, x.cols(), out.F32(t));
    }
  });
}

void RowOps::NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                      ConstMatrixView k_norm, float epsilon, ConstMatrixView rope, MatrixView qkv) {
  if (!HasHeads(index, heads, qkv)) return;
  const int d = heads.head_dim;
  const int64_t rotated = heads.num_heads + heads.num_kv_heads;  // heads per token
  const int64_t count = index.num_tokens * rotated;
  pool_.ParallelForWork(count, count * d, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / rotated;
      const int64_t head = i % rotated;
      float* x = qkv.F32(t) + head * d;
      const ConstMatrixView& norm = head < heads.num_heads ? q_norm : k_norm;
      if (!norm.empty()) kernels_.rms_norm(x, norm.F32(), epsilon, d, x);
      kernels_.rope(rope.F32(index.position[t]), d, x);
    }
  });
}

// Threads split the KV heads, so that rows of padding, which share a place in block 0, never race.
void RowOps::AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                      const KvLayerView& kv) {
  if (!HasHeads(index, heads, qkv)) return;
  const KvGeometry& g = kv.geometry;
  CheckCache(g, heads);
  const int d = heads.head_dim;
  const int64_t elements = int64_t{2} * index.num_tokens * heads.num_kv_heads * d;
  pool_.ParallelForWork(heads.num_kv_heads, elements, [&](int, int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      for (int t = 0; t < index.num_tokens; ++t) {
        const float* key = qkv.F32(t) + (heads.num_heads + head) * d;
        const float* value = key + int64_t{heads.num_kv_heads} * d;
        const int64_t row = index.seq_slot[index.token_seq[t]];
        const int32_t* blocks = index.block_tables + row * index.block_table_stride;
        const int64_t block = blocks[index.position[t] / g.block_tokens];
        const int64_t offset = index.position[t] % g.block_tokens;
        kernels_.append(key, value, d, g.format,
                        {kv.Keys(block, head), kv.Values(block, head), kv.Scaling(block, head),
                         g.block_tokens, offset});
      }
    }
  });
}

void RowOps::Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                    const KvLayerView& kv, float scale, int window, MatrixView out) {
  if (!HasHeads(index, heads, qkv) || heads.num_heads == 0) return;
  CheckCache(kv.geometry, heads);
  BH_CHECK(out.rows() == qkv.rows() && out.cols() == int64_t{heads.num_heads} * heads.head_dim);
  BH_CHECK(index.num_tokens <= limits_.max_num_batched_tokens &&
           index.num_seqs <= limits_.max_num_seqs && heads.num_heads == heads_.num_heads &&
           heads.head_dim == heads_.head_dim && workspace_ != nullptr);
  const AttentionSizes sizes(limits_, heads_);
  auto* tiles = reinterpret_cast<AttentionUnit*>(workspace_);
  auto* scratch = reinterpret_cast<float*>(
      workspace_ + RoundUp(sizes.max_tiles * int64_t{sizeof(AttentionUnit)}, kAlignBytes));

  AttentionCall call;
  call.q = qkv.F32();
  call.q_stride = qkv.row_stride();
  call.out = out.F32();
  call.out_stride = out.row_stride();
  call.position = index.position;
  call.kv = reinterpret_cast<const char*>(kv.base);
  call.block_bytes = kv.geometry.LayerBlockBytes();
  call.head_bytes = kv.geometry.HeadBytes();
  call.values_offset = kv.geometry.KeysBytes();
  call.scaling_offset = 2 * kv.geometry.KeysBytes();
  call.block_tokens = kv.geometry.block_tokens;
  call.format = kv.geometry.format;
  call.num_heads = heads.num_heads;
  call.head_dim = heads.head_dim;
  call.scale = scale;
  call.window = window;
  call.slots = scratch + sizes.scratch_floats * kMaxThreads;

  const int64_t num_tiles = PlanAttention(index, heads, window, pool_.num_threads(), sizes,
                                          absl::MakeSpan(tiles, sizes.max_tiles));
  const auto units = absl::MakeConstSpan(tiles, num_tiles);
  ForUnits(pool_, units, heads, [&](int thread, const AttentionUnit& unit) {
    kernels_.attend(call, unit, scratch + thread * sizes.scratch_floats);
  });
  const auto is_shared = [](const AttentionUnit& unit) { return unit.first_slot >= 0; };
  if (std::none_of(units.begin(), units.end(), is_shared)) return;
  ForUnits(pool_, units, heads, [&](int, const AttentionUnit& unit) {
    if (is_shared(unit) && unit.chunk_begin == unit.tile_chunk_begin) kernels_.merge(call, unit);
  });
}

void RowOps::SwiGlu(ConstMatrixView gate_up, MatrixView out) {
  BH_CHECK(gate_up.rows() == out.rows() && gate_up.cols() == 2 * out.cols());
  const int64_t parts = CeilDiv(out.cols(), kSwiGluColumns);  // of a row
  pool_.ParallelForWork(
      out.rows() * parts, out.rows() * out.cols(), [&](int, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % parts * kSwiGluColumns;
          const float* gate = gate_up.F32(i / parts) + column;
          kernels_.swiglu(gate, gate + out.cols(), std::min(kSwiGluColumns, out.cols() - column),
                          out.F32(i / parts) + column);
        }
      });
}

}  // namespace bulkhead
