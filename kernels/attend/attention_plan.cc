#include "kernels/attend/attention_plan.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/simd/exp_constants.h"

namespace bulkhead {
namespace {

// Units per thread to aim at: enough that the last one to end is short.
constexpr int64_t kUnitsPerThread = 4;
// Sequences of full length whose partial results have room.
constexpr int64_t kSplitSequences = 4;

int64_t LargestGroup(const HeadLayout& heads) {
  int64_t largest = 0;
  int64_t run = 0;
  for (int i = 0; i < heads.num_heads; ++i) {
    run = i > 0 && heads.head_to_kv[i] == heads.head_to_kv[i - 1] ? run + 1 : 1;
    largest = std::max(largest, run);
  }
  return largest;
}

AttentionUnit TileOf(const StepIndex& index, int seq, int first_token, int num_tokens, int window) {
  AttentionUnit tile;
  tile.first_token = first_token;
  tile.num_tokens = num_tokens;
  tile.blocks = index.block_tables + int64_t{index.seq_slot[seq]} * index.block_table_stride;
  const auto [least, most] =
      std::minmax_element(index.position + first_token, index.position + first_token + num_tokens);
  const int first = window > 0 ? std::max(0, *least - window + 1) : 0;
  tile.chunk_begin = first / kAttentionChunk;
  tile.chunk_end = *most / kAttentionChunk + 1;
  tile.tile_chunk_begin = tile.chunk_begin;
  tile.tile_chunks = tile.chunk_end - tile.chunk_begin;
  return tile;
}

// Reading a chunk costs about as much as four rows over it.
int64_t CostPerChunk(const AttentionUnit& tile) { return std::max(tile.num_tokens, 4); }

// emit(tile) for every tile of the step.
template <typename Emit>
void ForTiles(const StepIndex& index, int window, int tile_tokens, const Emit& emit) {
  for (int seq = 0; seq < index.num_seqs; ++seq) {
    const int begin = index.seq_begin[seq];
    for (int end = index.seq_begin[seq + 1]; end > begin;) {
      const int first = begin + (end - 1 - begin) / tile_tokens * tile_tokens;
      emit(TileOf(index, seq, first, end - first, window));
      end = first;
    }
  }
}

}  // namespace

AttentionSizes::AttentionSizes(const StepLimits& limits, const HeadLayout& heads) {
  if (heads.num_heads == 0) return;
  const int64_t group = LargestGroup(heads);
  const int64_t tokens = limits.max_num_batched_tokens;
  const int64_t seqs = std::min<int64_t>(limits.max_num_seqs, tokens);
  tile_tokens = static_cast<int>(std::max<int64_t>(1, kAttentionRows / group));
  scratch_floats = AttentionScratchFloats(std::max<int64_t>(kAttentionRows, group), heads.head_dim);
  // Cutting tiles adds at most one unit for each fair share.
  max_tiles = tokens / tile_tokens + seqs + kMaxThreads * kUnitsPerThread;
  num_slots = std::min(seqs, kSplitSequences) * heads.num_heads *
              CeilDiv(limits.max_model_len, kAttentionChunk);
}

int64_t AttentionSizes::SlotFloats(const HeadLayout& heads) const {
  return num_slots * AttentionSlotFloats(heads.head_dim);
}

HeadRange HeadsOf(const HeadLayout& heads, int kv_head) {
  const int32_t* end = heads.head_to_kv + heads.num_heads;
  const auto [first, last] = std::equal_range(heads.head_to_kv, end, kv_head);
  return {static_cast<int>(first - heads.head_to_kv), static_cast<int>(last - first)};
}

int64_t PlanAttention(const StepIndex& index, const HeadLayout& heads, int window, int num_threads,
                      const AttentionSizes& sizes, absl::Span<AttentionUnit> tiles) {
  int64_t cost = 0;
  ForTiles(index, window, sizes.tile_tokens,
           [&](const AttentionUnit& tile) { cost += tile.tile_chunks * CostPerChunk(tile); });
  const int64_t fair_cost = CeilDiv(cost * heads.num_kv_heads, num_threads * kUnitsPerThread);
  int64_t count = 0;
  int64_t slots = 0;
  ForTiles(index, window, sizes.tile_tokens, [&](AttentionUnit tile) {
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
