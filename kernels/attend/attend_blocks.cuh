// The work of a block of attention, over a step's splits or over its tokens, for any implementation
// (attend.cuh, warpgroups.cuh, wide.cuh): calls over(columns, KV head, range of the cache, put) for
// each, where put takes the results:
//   put(column, dim, sum of p v, max score in base 2, sum of p), or
//   put.Two(column, dim, two sums of p v), times what put.Begin(column, max score, sum of p, only)
//     returned; several threads may have a column, and exactly one of them passes `only`
#pragma once

#include "kernels/attend/attention_shape.cuh"
#include "kernels/attend/options.cuh"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead::cuda {

// The query heads of a block for `row` of the KV heads x head_tiles; heads <= 0: none.
BH_DEVICE Columns HeadsOfBlock(const AttendParameters& p, int row) {
  const int kv_head = row / p.head_tiles;
  Columns columns;
  columns.head0 = p.head_begin[kv_head] + row % p.head_tiles * p.heads_of_tile;
  columns.heads = p.head_begin[kv_head + 1] - columns.head0;
  if (columns.heads > p.heads_of_tile) columns.heads = p.heads_of_tile;
  return columns;
}

struct alignas(8) Floats2 {
  float v[2];
};

// Stores the sums of a split.
struct PutParts {
  const AttendParameters& p;
  const Columns& columns;
  int item;  // its row is read again to save registers

  BH_DEVICE void operator()(int column, int dim, float out, float greatest, float sum) const {
    p.parts[At(column) * p.out_dim + dim] = out;
    if (dim == 0) PutSum(column, greatest, sum);
  }
  BH_DEVICE float Begin(int column, float greatest, float sum, bool only) const {
    if (only) PutSum(column, greatest, sum);
    return 1.0F;
  }
  BH_DEVICE void Two(int column, int dim, const Floats2& out) const {
    StoreVector(p.parts + At(column) * p.out_dim + dim, out);
  }

 private:
  BH_DEVICE int64_t At(int column) const {
    return static_cast<int64_t>(p.items[item].row0 + columns.Token(column)) * p.num_heads +
           columns.Head(column);
  }
  BH_DEVICE void PutSum(int column, float greatest, float sum) const {
    p.part_sums[2 * At(column)] = greatest;
    p.part_sums[2 * At(column) + 1] = sum;
  }
};

// Stores the final attention output, over the whole cache.
struct PutOut {
  const AttendParameters& p;
  const Columns& columns;

  BH_DEVICE void operator()(int column, int dim, float out, float greatest, float sum) const {
    const float shrink = AddSink(p, columns.Head(column), greatest, sum);
    StoreOut(p.out, At(column, dim), out * shrink / sum);
  }
  BH_DEVICE float Begin(int column, float greatest, float sum, bool /*only*/) const {
    const float shrink = AddSink(p, columns.Head(column), greatest, sum);
    return shrink / sum;
  }
  BH_DEVICE void Two(int column, int dim, const Floats2& out) const {
    const int64_t at = At(column, dim);
    if (p.out.numbers == Numbers::kF32) {
      StoreVector(static_cast<float*>(p.out.data) + at, out);
    } else {
      uint32_t* const to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.out.data) + at);
      *to = p.out.numbers == Numbers::kBF16 ? Bf16Pair(out.v[0], out.v[1])
                                            : F16Pair(out.v[0], out.v[1]);
    }
  }

 private:
  BH_DEVICE int64_t At(int column, int dim) const {
    return columns.Token(column) * p.out.stride +
           static_cast<int64_t>(columns.Head(column)) * p.out_dim + dim;
  }
};

// Split `i` of the cache: for a one-token sequence, or for a tile of tokens of a longer one.
template <typename Over>
BH_DEVICE void ForSplit(const AttendParameters& p, int i, const Over& over) {
  const int kv_head = int(blockIdx.y) / p.head_tiles;
  Columns columns = HeadsOfBlock(p, int(blockIdx.y));
  if (columns.heads <= 0) return;
  const AttendItem item = LoadVector<AttendItem>(p.items + i);
  const int seq_end = p.cache.seq_begin[item.seq + 1];
  columns.token0 = p.cache.seq_begin[item.seq] + int(blockIdx.z) * p.tile_tokens;
  columns.tokens = seq_end - columns.token0;
  if (columns.tokens > p.tile_tokens) columns.tokens = p.tile_tokens;
  if (columns.tokens <= 0) return;  // the sequence has fewer tokens
  CacheRange range{item.split * item.split_tokens, (item.split + 1) * item.split_tokens};
  const int first = FirstSeen(p, p.cache.position[columns.token0]);
  const int end = p.cache.position[columns.token0 + columns.tokens - 1] + 1;
  if (first > range.first) range.first = first;
  if (end < range.end) range.end = end;
  if (range.first >= range.end) return;  // after the tokens, or before their window
  over(columns, kv_head, range, PutParts{p, columns, i});
}

// The splits that blocks share, if their number is on the device; else one per block.
template <typename Over>
BH_DEVICE void ForSplitsOfBlock(const AttendParameters& p, const Over& over) {
  // Read again where needed, to save registers.
  const auto num_items = [&] { return p.num_items != nullptr ? *p.num_items : int(gridDim.x); };
  for (int i = int(blockIdx.x); i < num_items(); i += int(gridDim.x)) {
    ForSplit(p, i, over);
    __syncthreads();  // shared memory is free again
  }
}

// Tokens of sequences with several tokens and a single split: those in this block's tile, one
// sequence after the other.
template <typename Over>
BH_DEVICE void ForTokensOfBlock(const AttendParameters& p, const Over& over) {
  const int kv_head = int(blockIdx.x) / p.head_tiles;
  Columns columns = HeadsOfBlock(p, int(blockIdx.x));
  // The last tokens attend to most, so they begin.
  const int tile = p.tiles - 1 - int(blockIdx.z) * kTilesOfLayer - int(blockIdx.y);
  if (columns.heads <= 0 || tile < 0) return;
  int end = (tile + 1) * p.tile_tokens;
  if (end > p.num_tokens) end = p.num_tokens;
  for (int token = tile * p.tile_tokens; token < end; token += columns.tokens) {
    const int seq = p.cache.token_seq[token];
    const int seq_begin = p.cache.seq_begin[seq];
    const int seq_end = p.cache.seq_begin[seq + 1];
    columns.token0 = token;
    columns.tokens = (seq_end < end ? seq_end : end) - token;
    if (seq_end - seq_begin == 1) continue;
    const int tokens = p.cache.position[seq_end - 1] + 1;
    if (SplitTokens(seq_end - seq_begin, tokens, p.splits, p.max_part_rows) < tokens) continue;
    const CacheRange range{FirstSeen(p, p.cache.position[token]),
                           p.cache.position[token + columns.tokens - 1] + 1};
    over(columns, kv_head, range, PutOut{p, columns});
    __syncthreads();  // shared memory is free again
  }
}

}  // namespace bulkhead::cuda
