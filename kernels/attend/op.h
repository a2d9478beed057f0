// Plain structs that describe attention work, between the planning (attention_plan.h) and the
// kernels of each instruction set (simd.cc).
//
// A unit is a tile of adjacent tokens of one sequence, query heads of one KV head, and a range of
// chunks of kAttentionChunk positions. Its rows are (token, head), token-major. If several units
// share a tile's context, they leave each chunk's partial result in a slot; `merge` joins them in
// order.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"
#include "memory/kv_format.h"

namespace bulkhead {

struct AttentionCall {
  const float* q = nullptr;  // [T, q_stride]
  int64_t q_stride = 0;
  float* out = nullptr;  // [T, out_stride]
  int64_t out_stride = 0;
  const int32_t* position = nullptr;  // [T]
  const char* kv = nullptr;           // [block][kv head], layout: memory/kv_cache.h
  int64_t block_bytes = 0;
  int64_t head_bytes = 0;
  int64_t values_offset = 0;   // within a head; latent: keys are values
  int64_t scaling_offset = 0;  // int8 and int4
  int block_tokens = 0;
  KvFormat format = KvFormat::kF32;
  int num_heads = 0;
  int head_dim = 0;
  int value_dim = 0;  // columns of a value
  bool latent = false;
  float scale = 1;
  int window = 0;
  float soft_cap = 0;                   // 0: none
  int chunk = 0;                        // positions from its last multiple on; 0: all
  const float* sinks = nullptr;         // [num_heads]; null: none
  const float* key_scales = nullptr;    // fp8, [kv heads]; null: 1
  const float* value_scales = nullptr;  // fp8, [kv heads]; null: 1
  float* slots = nullptr;               // partial results
};

struct AttentionUnit {
  int first_token = 0;
  int num_tokens = 0;
  int kv_head = 0;
  int first_head = 0;  // query heads [first_head, first_head + num_heads), which read kv_head
  int num_heads = 0;
  const int32_t* blocks = nullptr;  // the sequence's block table
  int chunk_begin = 0;
  int chunk_end = 0;
  int64_t first_slot = -1;   // -1: the unit has all chunks of its tile, and writes the output
  int tile_chunk_begin = 0;  // of the whole tile, over all its units
  int tile_chunks = 0;
};

// Widths padded to whole vectors.
inline constexpr int kAttentionLanes = 16;
static constexpr int PaddedHeadDim(int head_dim) {
  return (head_dim + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

// A slot: o [padded value_dim], then m and l, padded to a vector.
static constexpr int64_t AttentionSlotFloats(int value_dim) {
  return PaddedHeadDim(value_dim) + kAttentionLanes;
}
// The slot of (token of the tile, head, chunk).
static constexpr int64_t AttentionSlot(const AttentionCall& call, const AttentionUnit& unit,
                                       int token, int head, int chunk) {
  return unit.first_slot + (int64_t{token} * call.num_heads + head) * unit.tile_chunks + chunk -
         unit.tile_chunk_begin;
}

// Target rows of a unit: enough to be compute-bound, few enough that its scratch stays in L2.
inline constexpr int kAttentionRows = 48;
// Tokens widened to f32 at a time: half of a 32 KiB L1 cache, since every row tile reads all of
// them.
static constexpr int AttentionSpanTokens(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 32 : 16;
}
// At least as large as for any narrower head.
static constexpr int64_t AttentionSpanFloats(int head_dim) {
  const int64_t floats = int64_t{AttentionSpanTokens(head_dim)} * PaddedHeadDim(head_dim);
  return floats > 64 * 64 ? floats : 64 * 64;
}
// Vectors of 16 tokens between reads and prefetches; these go into L2, which has more outstanding
// misses than L1. The blocks of a sequence are small and scattered, so that hardware prefetchers
// start anew with each.
inline constexpr int kAttentionAhead = 4;
// Weights of one row over a chunk, padded so that adjacent rows fall into different cache sets.
inline constexpr int kAttentionWeightStride = 256 + 16;

// Floats of scratch per thread, for at most `max_rows` rows: queries, weights, two outputs, a span
// of keys or values, and per row m, l and the visible range.
static constexpr int64_t AttentionScratchFloats(int64_t max_rows, int head_dim, int value_dim) {
  const int64_t width = PaddedHeadDim(head_dim);
  const int64_t value_width = PaddedHeadDim(value_dim);
  return max_rows * (width + 2 * value_width + kAttentionWeightStride + kAttentionLanes) +
         AttentionSpanFloats(head_dim);
}

// `scratch`: AttentionScratchFloats, 64-byte aligned.
BH_PER_ISA(void AttendUnit(const AttentionCall& call, const AttentionUnit& unit, float* scratch))
// Joins the slots of a whole tile and writes its output.
BH_PER_ISA(void MergeUnit(const AttentionCall& call, const AttentionUnit& unit))

}  // namespace bulkhead
