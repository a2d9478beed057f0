#include "kernels/attend/cpu.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/simd/exp_constants.h"

namespace bulkhead {
namespace {

AttentionUnit UnitOf(const AttentionUnit& tile, const HeadPart& heads) {
  AttentionUnit unit = tile;
  unit.kv_head = heads.kv_head;
  unit.first_head = heads.first;
  unit.num_heads = heads.count;
  return unit;
}

int64_t Products(absl::Span<const AttentionUnit> tiles, const HeadLayout& heads) {
  int64_t rows = 0;
  for (const AttentionUnit& tile : tiles) {
    rows += int64_t{tile.num_tokens} * (tile.chunk_end - tile.chunk_begin);
  }
  return rows * kAttentionChunk * heads.num_heads * heads.head_dim;
}

// visit(thread, unit) for each tile and part of the heads; a thread takes the next when it is done.
// Tiles of one sequence are consecutive, so that their data stays in L2.
template <typename Visit>
void ForUnits(ThreadPool& pool, absl::Span<const AttentionUnit> tiles, const HeadLayout& heads,
              const Visit& visit) {
  const auto num_tiles = static_cast<int64_t>(tiles.size());
  const int64_t count = num_tiles * NumHeadParts(heads);
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      const HeadPart part = HeadPartOf(heads, static_cast<int>(i / num_tiles));
      visit(thread, UnitOf(tiles[i % num_tiles], part));
    }
  };
  pool.ParallelForWork(pool.num_threads(), Products(tiles, heads),
                       [&](int thread, int64_t, int64_t) { work(thread); });
}

}  // namespace

CpuAttendScratch::CpuAttendScratch(const StepLimits& limits, const HeadLayout& heads,
                                   BumpAllocator& allocator)
    : sizes(limits, heads),
      max_tokens(limits.max_num_batched_tokens),
      max_seqs(limits.max_num_seqs),
      num_heads(heads.num_heads),
      value_dim(heads.value_dim) {
  const auto floats = [&](int64_t count) {
    return reinterpret_cast<float*>(allocator.Next(count * int64_t{sizeof(float)}));
  };
  tiles = reinterpret_cast<AttentionUnit*>(
      allocator.Next(sizes.max_tiles * int64_t{sizeof(AttentionUnit)}));
  scratch = floats(sizes.scratch_floats * kMaxThreads);
  slots = floats(sizes.SlotFloats());
}

void CpuBackend::Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                        const KvLayerView& kv, const AttentionOptions& options, MatrixView out) {
  if (!HasHeads(index, heads, qkv) || heads.num_heads == 0) return;
  CheckCache(kv.geometry, heads);
  BH_CHECK(out.rows() == qkv.rows() && out.cols() == int64_t{heads.num_heads} * heads.out_dim());
  const CpuAttendScratch& s = attend_scratch_;
  BH_CHECK(index.num_tokens <= s.max_tokens && index.num_seqs <= s.max_seqs &&
           heads.num_heads == s.num_heads && heads.head_dim <= s.sizes.head_dim &&
           heads.value_dim == s.value_dim && s.tiles != nullptr);

  AttentionCall call;
  call.q = qkv.F32();
  call.q_stride = qkv.row_stride();
  call.out = out.F32();
  call.out_stride = out.row_stride();
  call.position = index.position;
  call.kv = reinterpret_cast<const char*>(kv.base);
  call.block_bytes = kv.block_stride;
  call.head_bytes = kv.geometry.HeadBytes();
  call.values_offset = kv.geometry.latent ? 0 : kv.geometry.KeysBytes();
  call.scaling_offset = kv.geometry.num_parts() * kv.geometry.KeysBytes();
  call.block_tokens = kv.geometry.block_tokens;
  call.format = kv.geometry.format;
  call.num_heads = heads.num_heads;
  call.head_dim = heads.head_dim;
  call.value_dim = heads.out_dim();
  call.latent = kv.geometry.latent;
  call.scale = options.scale;
  call.window = options.window;
  call.soft_cap = options.soft_cap;
  call.chunk = options.chunk;
  BH_CHECK(options.sinks.empty() || options.sinks.cols() == heads.num_heads);
  call.sinks = options.sinks.empty() ? nullptr : options.sinks.F32();
  if (kv.geometry.format == KvFormat::kFP8) {
    call.key_scales = kv.key_scales;
    call.value_scales = kv.geometry.latent ? kv.key_scales : kv.value_scales;
  }
  call.slots = s.slots;

  const int64_t num_tiles = PlanAttention(index, heads, options, pool_->num_threads(), s.sizes,
                                          absl::MakeSpan(s.tiles, s.sizes.max_tiles));
  const auto units = absl::MakeConstSpan(s.tiles, num_tiles);
  const bool in_bf16 = attention_ != AttentionDType::kF32 && call.format == KvFormat::kBF16;
  BH_CHECK(!in_bf16 || s.sizes.in_bf16);
  const auto attend = !in_bf16 ? BH_OF_ISA(isa_, AttendUnit)
                      : attention_ == AttentionDType::kBf16
                          ? BH_OF_ISA_OR_BF16(isa_, AttendUnitInPairs)
                          : BH_OF_AMX(isa_, AttendUnitInTiles);
  const auto merge = BH_OF_ISA(isa_, MergeUnit);
  ForUnits(*pool_, units, heads, [&](int thread, const AttentionUnit& unit) {
    attend(call, unit, s.scratch + thread * s.sizes.scratch_floats);
  });
  const auto is_shared = [](const AttentionUnit& unit) { return unit.first_slot >= 0; };
  if (std::none_of(units.begin(), units.end(), is_shared)) return;
  ForUnits(*pool_, units, heads, [&](int, const AttentionUnit& unit) {
    if (is_shared(unit) && unit.chunk_begin == unit.tile_chunk_begin) merge(call, unit);
  });
}

}  // namespace bulkhead
