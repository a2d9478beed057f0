// The two kernels of attention (cuda_kernels.h) for one format of the cache; one .cu file for each
// format, because there are many shapes.
#pragma once

#include "kernels/attend/attention.cuh"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {

// The columns see `range`; put() as AttendLane::Merge has it.
template <KvFormat kFormat, int kDimTiles, int kTiles, WarpsShare kShare, typename Put>
BH_DEVICE void AttendOver(const AttendParameters& p, const Columns& columns, int kv_head,
                          const CacheRange& range, const Put& put) {
  using Shape = AttendShape<kFormat, kDimTiles, kTiles, kShare>;
  unsigned char* const tiles = SharedMemory() + Shape::kTilesAt;
  const int64_t slot = p.cache.seq_slot[p.cache.token_seq[columns.token0]];
  const HeadCache head{&p.cache, p.cache.block_tables + slot * p.cache.block_table_stride,
                       kv_head * p.cache.head_bytes};
  const int begin = range.first / kAttendTokens * kAttendTokens;
  AttendLane<kFormat, kDimTiles, kTiles, kShare> lane(p, columns, kv_head, SharedMemory());
  if constexpr (Shape::kInCodes) {
    // Few columns leave registers to load a tile while the one before it is used.
    constexpr bool kAhead = !Shape::kByColumns;
    RawTile<Shape::kDims, kFormat> raw;
    if constexpr (kAhead) raw.Load(head, begin, range);
    lane.LoadQueries();
    for (int token0 = begin; token0 < range.end; token0 += kAttendTokens) {
      const int next = token0 + kAttendTokens;
      if constexpr (!kAhead) raw.Load(head, token0, range);
      __syncthreads();  // everybody is done with the tile before
      raw.Store(head, token0, range, tiles);
      if constexpr (kAhead) {
        if (next < range.end) raw.Load(head, next, range);
      }
      __syncthreads();
      lane.Add(tiles, token0, range);
    }
  } else {
    CopyTile<Shape::kDims>(head, begin, range, tiles);
    lane.LoadQueries();
    int stage = 0;
    for (int token0 = begin; token0 < range.end; token0 += kAttendTokens) {
      CpAsyncWait<0>();
      __syncthreads();  // the tile is there, and everybody is done with the one before
      const int next = token0 + kAttendTokens;
      if (next < range.end) {
        CopyTile<Shape::kDims>(head, next, range, tiles + (1 - stage) * Shape::kTileBytes);
      }
      lane.Add(tiles + stage * Shape::kTileBytes, token0, range);
      stage = 1 - stage;
    }
  }
  lane.Merge(put);
}

// Which query heads a block has that is `row` of the KV heads x head_tiles; none: heads is 0 or
// less.
BH_DEVICE Columns HeadsOfBlock(const AttendParameters& p, int row) {
  const int kv_head = row / p.head_tiles;
  Columns columns;
  columns.head0 = p.head_begin[kv_head] + row % p.head_tiles * p.heads_of_tile;
  columns.heads = p.head_begin[kv_head + 1] - columns.head0;
  if (columns.heads > p.heads_of_tile) columns.heads = p.heads_of_tile;
  return columns;
}

// Blocks of AttendDecode on a multiprocessor: many hide the memory's latency.
template <KvFormat kFormat, int kDimTiles, int kTiles>
inline constexpr int kSharing = kDimTiles* kTiles > 8 ? 2 : 3;

// Splits of the cache of sequences of one token.
template <KvFormat kFormat, int kDimTiles, int kTiles>
BH_KERNEL_SHARING(kAttendThreads, (kSharing<kFormat, kDimTiles, kTiles>))
AttendDecode(AttendParameters p) {
  GridDependencySynchronize();
  const int kv_head = int(blockIdx.y) / p.head_tiles;
  Columns columns = HeadsOfBlock(p, int(blockIdx.y));
  if (columns.heads <= 0) return;
  columns.tokens = 1;
  const int items = *p.num_items;
  for (int i = int(blockIdx.x); i < items; i += int(gridDim.x)) {
    const AttendItem item = p.items[i];
    columns.token0 = p.cache.seq_begin[item.seq];
    const int position = p.cache.position[columns.token0];
    const int split_tokens = SplitTokens(position + 1);
    CacheRange range{item.split * split_tokens, (item.split + 1) * split_tokens};
    const int first = FirstSeen(p, position);
    if (first > range.first) range.first = first;
    if (position + 1 < range.end) range.end = position + 1;
    if (range.first >= range.end) continue;  // the window has left it behind
    const int64_t row = (static_cast<int64_t>(item.seq) * p.splits + item.split) * p.num_heads;
    AttendOver<kFormat, kDimTiles, kTiles, WarpsShare::kTokens>(
        p, columns, kv_head, range, [&](int column, int dim, float out, float greatest, float sum) {
          const int64_t at = row + columns.Head(column);
          p.parts[at * p.cache.head_dim + dim] = out;
          if (dim == 0) p.part_sums[2 * at] = greatest;
          if (dim == 0) p.part_sums[2 * at + 1] = sum;
        });
    __syncthreads();  // shared memory is free again
  }
}

// Tokens of sequences that have more than one: those of this block's that belong together, one
// sequence after the other.
template <KvFormat kFormat, int kDimTiles, int kTiles>
BH_KERNEL(kAttendThreads)
AttendPrefill(AttendParameters p) {
  GridDependencySynchronize();
  const int kv_head = int(blockIdx.x) / p.head_tiles;
  Columns columns = HeadsOfBlock(p, int(blockIdx.x));
  // The last tokens attend to most: they begin.
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
    const CacheRange range{FirstSeen(p, p.cache.position[token]),
                           p.cache.position[token + columns.tokens - 1] + 1};
    AttendOver<kFormat, kDimTiles, kTiles, WarpsShare::kColumns>(
        p, columns, kv_head, range, [&](int column, int dim, float out, float greatest, float sum) {
          const int head = columns.Head(column);
          const float shrink = AddSink(p, head, greatest, sum);
          StoreOut(p.out,
                   columns.Token(column) * p.out.stride +
                       static_cast<int64_t>(head) * p.cache.head_dim + dim,
                   out * shrink / sum);
        });
    __syncthreads();  // shared memory is free again
  }
}

template <KvFormat kFormat, int kDimTiles, int kTiles>
AttendLaunch SplitLaunch(const char* name) {
  return {KernelOf(name, AttendDecode<kFormat, kDimTiles, kTiles>),
          AttendShape<kFormat, kDimTiles, kTiles, WarpsShare::kTokens>::kBytes,
          kSharing<kFormat, kDimTiles, kTiles>};
}

template <KvFormat kFormat, int kDimTiles, int kTiles>
AttendLaunch WholeLaunch(const char* name) {
  return {KernelOf(name, AttendPrefill<kFormat, kDimTiles, kTiles>),
          AttendShape<kFormat, kDimTiles, kTiles, WarpsShare::kColumns>::kBytes, 1};
}

template <KvFormat kFormat>
AttendLaunch AttendLaunchFor(const char* name, int head_dim, int column_tiles, bool split) {
  if (head_dim > 128) {
    return split ? SplitLaunch<kFormat, 16, 1>(name) : WholeLaunch<kFormat, 16, 1>(name);
  }
  if (!split) {
    constexpr int kTiles = WholeColumnTiles(kFormat);
    return head_dim > 64 ? WholeLaunch<kFormat, 8, kTiles>(name)
                         : WholeLaunch<kFormat, 4, kTiles>(name);
  }
  if (column_tiles == 1) {
    return head_dim > 64 ? SplitLaunch<kFormat, 8, 1>(name) : SplitLaunch<kFormat, 4, 1>(name);
  }
  return head_dim > 64 ? SplitLaunch<kFormat, 8, 2>(name) : SplitLaunch<kFormat, 4, 2>(name);
}

// One of each kind that there is.
inline std::vector<CudaKernel> AllOf(AttendLaunch (*launch_for)(int head_dim, int column_tiles,
                                                                bool split)) {
  std::vector<CudaKernel> kernels;
  for (const int head_dim : {64, 128, 256}) {
    for (const int column_tiles : {1, 2}) {
      for (const bool split : {false, true}) {
        kernels.push_back(launch_for(head_dim, column_tiles, split).kernel.kernel);
      }
    }
  }
  return kernels;
}

}  // namespace bulkhead::cuda
