// The kernels of Attend: what they take and how they are launched.
#pragma once

#include <stdint.h>

#include "kernels/cuda/parameters.h"
#include "memory/cuda_kernel.h"
#include "memory/kv_format.h"

namespace bulkhead::cuda {

// Causal attention. A block takes pairs of a token and a query head that share a KV head, its
// columns, and 64 tokens of the cache at a time. Two kernels share the work:
//   sequences of one token   grid {any, KV heads x head_tiles}: blocks take the items in turn, each
//                            a split of SplitTokens of the cache, its sums to `parts`;
//                            CombineKernel adds
//   sequences of more        grid {KV heads x head_tiles, tiles: T / tile_tokens, in layers of
//                            kTilesOfLayer}: whole, to `out`; the last tokens of all heads
//                            begin, so that no long block begins late
inline constexpr int kMinSplitTokens = 256;
inline constexpr int kMaxSplits = 32;  // of a context, so that the size of their sums is fixed
// Tokens of a split of a context of `tokens`: from the context alone, so that a row's bits do not
// depend on the others.
constexpr int SplitTokens(int tokens) {
  int split_tokens = kMinSplitTokens;
  while (tokens > split_tokens * kMaxSplits) split_tokens *= 2;
  return split_tokens;
}
struct AttendItem {
  int32_t seq = 0;
  int32_t split = 0;  // which split
};
struct AttendParameters {
  CacheParameters cache;
  ConstRows qkv;
  const int32_t* head_begin = nullptr;  // [KV heads + 1] first query head of each KV head
  int num_tokens = 0;
  int num_heads = 0;
  int head_tiles = 0;     // blocks for the query heads of a KV head
  int heads_of_tile = 0;  // at most
  int tile_tokens = 0;
  int tiles = 0;
  int splits = 0;  // of any context at most
  const int32_t* num_items = nullptr;
  const AttendItem* items = nullptr;
  int window = 0;
  int chunk = 0;
  float scale = 0;
  float soft_cap = 0;
  const float* sinks = nullptr;  // [h], null: none
  int out_dim = 0;               // of a head's sum of values
  // [S][splits][h][out_dim]: sums of p v, and [S][splits][h][2]: {the greatest score in base 2, sum
  // of p}
  float* parts = nullptr;
  float* part_sums = nullptr;
  OutRows out;
};
inline constexpr float kMaskedScore = -1e30F;  // a masked score
inline constexpr int kAttendThreads = 128;
inline constexpr int kTilesOfLayer = 1 << 15;  // a grid has room for no more in y
inline constexpr int kAttendWarps = kAttendThreads / 32;
inline constexpr int kAttendTokens = 64;
struct AttendLaunch {
  CudaKernelOf<AttendParameters> kernel;
  int64_t shared_bytes = 0;
  int blocks_of_sm = 1;  // for which registers are enough
  int threads = kAttendThreads;
};
// For keys and values in each format. head_dim: a multiple of 8 up to 256. `split`: the first of
// the two, whose blocks have 8 column_tiles columns, 1 or 2 (beyond 128 dims 1); those of the
// second have four times that, up to 128 dims of WholeColumnTiles, beyond of one.
constexpr int WholeColumnTiles(KvFormat format) { return KvElementBits(format) <= 8 ? 2 : 4; }
AttendLaunch AttendBF16Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendF16Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendInt4Kernel(int head_dim, int column_tiles, bool split);
AttendLaunch AttendFp8Kernel(int head_dim, int column_tiles, bool split);

// For a latent cache (latent.cuh) in bf16, f16 or fp8: the same two, of blocks with 8 column_tiles
// columns each, column_tiles 2, 4 or 8 of the first and 2 or 8 of the second.
inline constexpr int kLatentThreads = 256;
inline constexpr int kLatentTokens = 32;        // of the cache at a time
inline constexpr int kMaxLatentDim = 576;       // of a key
inline constexpr int kMaxLatentValueDim = 512;  // its first columns
AttendLaunch AttendLatentKernel(KvFormat format, int column_tiles, bool split);

CudaKernelOf<AttendParameters> CombineKernel();  // grid {S, h / kHeadWarps}

}  // namespace bulkhead::cuda
