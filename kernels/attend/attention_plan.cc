#include "kernels/attend/attention_plan.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/simd/exp_constants.h"

namespace bulkhead {
namespace {

// Target units per thread: enough that the last one to end is short.
constexpr int64_t kUnitsPerThread = 4;
// Full-length sequences with room for partial results; one with the many heads of a latent cache.
constexpr int64_t kSplitSequences = 4;
constexpr int64_t kSplitLatentSequences = 1;

// The query heads that read `kv_head`.
HeadPart HeadsOf(const HeadLayout& heads, int kv_head) {
  const int32_t* end = heads.head_to_kv + heads.num_heads;
  const auto [first, last] = std::equal_range(heads.head_to_kv, end, kv_head);
  return {kv_head, static_cast<int>(first - heads.head_to_kv), static_cast<int>(last - first)};
}

int PartsOf(const HeadPart& all) { return static_cast<int>(CeilDiv(all.count, kAttentionRows)); }

// One pass over the KV heads, of which there may be thousands: a plan calls this hundreds of times.
int64_t LargestPart(const HeadLayout& heads) {
  int64_t largest = 0;
  for (int kv = 0; kv < heads.num_kv_heads; ++kv) {
    const HeadPart all = HeadsOf(heads, kv);
    if (all.count > 0) largest = std::max<int64_t>(largest, CeilDiv(all.count, PartsOf(all)));
  }
  return largest;
}

int FirstSeen(int position, const AttentionOptions& options) {
  const int window = options.window > 0 ? std::max(0, position - options.window + 1) : 0;
  const int chunk = options.chunk > 0 ? position / options.chunk * options.chunk : 0;
  return std::max(window, chunk);
}

AttentionUnit TileOf(const StepIndex& index, int seq, int first_token, int num_tokens,
                     const AttentionOptions& options) {
  AttentionUnit tile;
  tile.first_token = first_token;
  tile.num_tokens = num_tokens;
  tile.blocks = index.block_tables + int64_t{index.seq_slot[seq]} * index.block_table_stride;
  const auto [min_position, max_position] =
      std::minmax_element(index.position + first_token, index.position + first_token + num_tokens);
  tile.chunk_begin = FirstSeen(*min_position, options) / kAttentionChunk;
  tile.chunk_end = *max_position / kAttentionChunk + 1;
  tile.tile_chunk_begin = tile.chunk_begin;
  tile.tile_chunks = tile.chunk_end - tile.chunk_begin;
  return tile;
}

// Reading a chunk costs about as much as four rows over it.
int64_t CostPerChunk(const AttentionUnit& tile) { return std::max(tile.num_tokens, 4); }

// emit(tile) for every tile of the step.
template <typename Emit>
void ForTiles(const StepIndex& index, const AttentionOptions& options, int tile_tokens,
              const Emit& emit) {
  for (int seq = 0; seq < index.num_seqs; ++seq) {
    const int begin = index.seq_begin[seq];
    for (int end = index.seq_begin[seq + 1]; end > begin;) {
      const int first = begin + (end - 1 - begin) / tile_tokens * tile_tokens;
      emit(TileOf(index, seq, first, end - first, options));
      end = first;
    }
  }
}

}  // namespace

AttentionSizes::AttentionSizes(const StepLimits& limits, const HeadLayout& heads) {
  if (heads.num_heads == 0) return;
  const HeadLayout& full = limits.full_heads;
  const int64_t part = std::max(LargestPart(heads), LargestPart(full));
  const int64_t tokens = limits.max_num_batched_tokens;
  const int64_t seqs = std::min<int64_t>(limits.max_num_seqs, tokens);
  const int rows = limits.attention_in_bf16 ? kAttentionTileUnitRows : kAttentionRows;
  tile_tokens = static_cast<int>(std::max<int64_t>(1, rows / part));
  head_dim = std::max(heads.head_dim, full.head_dim);
  out_dim = std::max(heads.out_dim(), full.out_dim());
  scratch_floats = AttentionScratchFloats(rows, head_dim, out_dim);
  min_tile_tokens = tile_tokens;
  if (limits.attention_in_bf16) {
    in_bf16 = true;
    min_tile_tokens = static_cast<int>(std::max<int64_t>(1, kAttentionRows / part));
    scratch_floats = std::max(scratch_floats, AttentionTileLayoutOf(rows, head_dim, out_dim).total);
  }
  // Cutting tiles adds at most one unit per fair share; so do tiles smaller than tile_tokens, as
  // each has a share of the tokens.
  const int64_t shares = kMaxThreads * kUnitsPerThread * (limits.attention_in_bf16 ? 2 : 1);
  max_tiles = tokens / tile_tokens + seqs + shares;
  num_slots = std::min(seqs, heads.latent() ? kSplitLatentSequences : kSplitSequences) *
              heads.num_heads * CeilDiv(limits.max_model_len, kAttentionChunk);
}

int64_t AttentionSizes::SlotFloats() const { return num_slots * AttentionSlotFloats(out_dim); }

int NumHeadParts(const HeadLayout& heads) {
  int parts = 0;
  for (int kv = 0; kv < heads.num_kv_heads; ++kv) parts += PartsOf(HeadsOf(heads, kv));
  return parts;
}

HeadPart HeadPartOf(const HeadLayout& heads, int part) {
  for (int kv = 0;; ++kv) {
    BH_CHECK(kv < heads.num_kv_heads);
    const HeadPart all = HeadsOf(heads, kv);
    const int parts = PartsOf(all);
    if (part < parts) {
      const int begin = all.count * part / parts;
      return {kv, all.first + begin, all.count * (part + 1) / parts - begin};
    }
    part -= parts;
  }
}

int64_t PlanAttention(const StepIndex& index, const HeadLayout& heads,
                      const AttentionOptions& options, int num_threads, const AttentionSizes& sizes,
                      absl::Span<AttentionUnit> tiles) {
  const int64_t units = num_threads * kUnitsPerThread;
  const int tile_tokens =
      static_cast<int>(std::clamp<int64_t>(CeilDiv(index.num_tokens * NumHeadParts(heads), units),
                                           sizes.min_tile_tokens, sizes.tile_tokens));
  int64_t cost = 0;
  ForTiles(index, options, tile_tokens,
           [&](const AttentionUnit& tile) { cost += tile.tile_chunks * CostPerChunk(tile); });
  const int64_t fair_cost = CeilDiv(cost * NumHeadParts(heads), units);
  int64_t count = 0;
  int64_t slots = 0;
  ForTiles(index, options, tile_tokens, [&](AttentionUnit tile) {
    const int64_t tile_slots = int64_t{tile.num_tokens} * heads.num_heads * tile.tile_chunks;
    const int64_t parts =
        std::min<int64_t>(tile.tile_chunks, tile.tile_chunks * CostPerChunk(tile) / fair_cost);
    if (num_threads == 1 || parts <= 1 || slots + tile_slots > sizes.num_slots) {
      BH_CHECK(count < static_cast<int64_t>(tiles.size()));
      tiles[count++] = tile;
      return;
    }
    tile.first_slot = slots;
    slots += tile_slots;
    for (int64_t part = 0; part < parts; ++part) {
      AttentionUnit unit = tile;
      unit.chunk_begin = tile.tile_chunk_begin + static_cast<int>(tile.tile_chunks * part / parts);
      unit.chunk_end =
          tile.tile_chunk_begin + static_cast<int>(tile.tile_chunks * (part + 1) / parts);
      BH_CHECK(count < static_cast<int64_t>(tiles.size()));
      tiles[count++] = unit;
    }
  });
  return count;
}

}  // namespace bulkhead
