// The kernels of Attend: their parameters and launch shapes.
#pragma once

#include <stdint.h>

#include <optional>

#include "kernels/cuda/parameters.h"
#include "memory/cuda_kernel.h"
#include "memory/kv_format.h"

namespace bulkhead::cuda {

// Causal attention. A block takes pairs of a token and a query head that share a KV head, its
// columns, and 64 tokens of the cache at a time. There are three kinds of work (AttendWork):
//   sequences of one token   grid {any, KV heads x head_tiles}: blocks share the items, each a
//                            split of the cache, its sums to `parts`; CombineKernel adds
//   few tokens after many    grid {items, KV heads x head_tiles, tiles: tokens / tile_tokens}: one
//                            split per block, sums to `parts`; CombineTokensKernel adds
//   all other sequences      grid {KV heads x head_tiles, tiles: T / tile_tokens, in layers of
//                            kTilesOfLayer}: the whole context, to `out`; the last tokens of all
//                            heads begin, so that no long block begins late
inline constexpr int kAttendTokens = 64;
inline constexpr int kMinSplitTokens = 256;
// Split size of one-token contexts of up to kMinSplitTokens: few sequences have few blocks, each of
// which would otherwise go through all tiles.
inline constexpr int kShortSplitTokens = 64;
// Splits of a context: up to kFewSplits have the minimum size; more have at least kLongSplitTokens,
// since each takes a block extra time. The maximum number depends on the size of their sums
// (CudaAttentionSplits): a rank with few heads would otherwise have few blocks.
inline constexpr int kFewSplits = 32;
inline constexpr int kMaxSplits = 128;
inline constexpr int kLongSplitTokens = 512;
// Maximum size of the split sums of one sequence of several tokens: enough blocks for a large GPU.
inline constexpr int64_t kMaxPartFloats = int64_t{4} << 20;
// Split size for a sequence with a context of `tokens`, of which `new_tokens` are the step's:
// depends only on these, so that a row's bits do not depend on other rows. The sums of several
// tokens are at most max_part_rows rows, one per token and split, and a split is at least as long
// as new_tokens. `tokens` or more: a single split.
constexpr int SplitTokens(int new_tokens, int tokens, int max_splits, int max_part_rows) {
  int split_tokens = kMinSplitTokens;
  if (new_tokens == 1) {
    if (tokens <= kMinSplitTokens) return kShortSplitTokens;
    if (tokens > kFewSplits * kMinSplitTokens) split_tokens = kLongSplitTokens;
    while (tokens > split_tokens * max_splits) split_tokens *= 2;
    return split_tokens;
  }
  const int room = max_part_rows / new_tokens;
  if (room < max_splits) max_splits = room;
  if (max_splits < 2) return tokens;
  const auto of_splits = [=](int splits) { return (tokens + splits - 1) / splits; };
  if (split_tokens < of_splits(kFewSplits)) split_tokens = of_splits(kFewSplits);
  if (split_tokens > kLongSplitTokens) split_tokens = kLongSplitTokens;
  if (split_tokens < of_splits(max_splits)) split_tokens = of_splits(max_splits);
  if (split_tokens < new_tokens) split_tokens = new_tokens;
  return (split_tokens + kAttendTokens - 1) / kAttendTokens * kAttendTokens;
}
// A block's cost of a split of a one-token sequence, including starting and ending it.
constexpr int WorkOfSplit(int tokens) { return (tokens + 15) / 16 + 8; }
struct alignas(16) AttendItem {
  int32_t seq = 0;
  int32_t split = 0;  // index of the split
  int32_t split_tokens = 0;
  int32_t row0 = 0;  // the sums of the step's token t are in row row0 + t of `parts`
};
// A token whose splits CombineTokensKernel adds.
struct alignas(16) CombineItem {
  int32_t token = 0;
  int32_t row = 0;       // of split 0
  int32_t row_step = 0;  // from one split's to the next's
  int32_t split_tokens = 0;
};
struct AttendParameters {
  CacheParameters cache;
  ConstRows qkv;
  const int32_t* head_begin = nullptr;  // [KV heads + 1] first query head of each KV head
  int num_tokens = 0;
  int num_heads = 0;
  int head_tiles = 0;     // blocks per KV head for its query heads
  int heads_of_tile = 0;  // maximum
  int tile_tokens = 0;
  int tiles = 0;
  int splits = 0;  // maximum of any context
  int max_part_rows = 0;
  bool stores_single_splits = false;   // in `out`: CombineKernel then has nothing to add
  const int32_t* num_items = nullptr;  // AttendList; null: the number of blocks in x
  const AttendItem* items = nullptr;
  const CombineItem* combined = nullptr;  // for CombineTokensKernel
  int window = 0;
  int chunk = 0;
  float scale = 0;
  float soft_cap = 0;
  const float* sinks = nullptr;  // [h], null: none
  int out_dim = 0;               // dims of a head's output
  // [rows][h][out_dim]: sums of p v, and [rows][h][2]: {the greatest score in base 2, sum of p}.
  // The row of a one-token sequence is its index * splits + split; with several tokens each item
  // gives its own.
  float* parts = nullptr;
  float* part_sums = nullptr;
  OutRows out;
};
inline constexpr float kMaskedScore = -1e30F;  // a masked score
inline constexpr int kAttendThreads = 128;
inline constexpr int kTilesOfLayer = 1 << 15;  // fits the grid's y dimension
inline constexpr int kAttendWarps = kAttendThreads / 32;
enum class AttendWork {
  kDecode,        // splits of sequences of one token
  kSplitPrefill,  // splits of sequences of several tokens
  kPrefill,       // sequences of several tokens, whole
};
struct AttendLaunch {
  CudaKernelOf<AttendParameters> kernel;
  int64_t shared_bytes = 0;
  int blocks_of_sm = 1;  // as many as registers allow
  int threads = kAttendThreads;
};
// For keys and values in each format. head_dim: a multiple of 8 up to 256. Blocks of kDecode have 8
// column_tiles columns, 1 or 2 (beyond 128 dims 1); those of the others four times as many: up to
// 128 dims PrefillColumnTiles, from 72 dims on also two, beyond 128 dims one. Or a multiple of 32
// up to 512 (wide.cuh): blocks of 8 column_tiles columns, 2 or 8; kDecode and kSplitPrefill are one
// kernel.
inline constexpr int kMaxNarrowHeadDim = 256;
inline constexpr int kMaxHeadDim = 512;
constexpr int PrefillColumnTiles(KvFormat format) { return KvElementBits(format) <= 8 ? 2 : 4; }
// Maximum shared memory of a block with 16-bit keys and values of 136 to 256 dims, and with two
// tiles of columns in any format with more dims (eight are used if a block has 200 KiB).
inline constexpr int64_t k16BitSharedBytes = 158336;
inline constexpr int64_t kWideHeadSharedBytes = 149696;
AttendLaunch AttendBF16Kernel(int head_dim, int column_tiles, AttendWork work);
AttendLaunch AttendF16Kernel(int head_dim, int column_tiles, AttendWork work);
AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, AttendWork work);
AttendLaunch AttendInt4Kernel(int head_dim, int column_tiles, AttendWork work);
AttendLaunch AttendFp8Kernel(int head_dim, int column_tiles, AttendWork work);

// The same for kSplitPrefill and kPrefill by warpgroup products (warpgroups.cuh), with
// kWarpgroupColumns columns: all formats but f32, heads of 64 and 128, no soft cap, rows of queries
// aligned to 16 bytes and of out to 8; none otherwise, or if the build lacks them. For compute
// capability 9.0.
inline constexpr int kWarpgroupColumns = 128;
std::optional<AttendLaunch> AttendByWarpgroupsKernel(KvFormat format, int head_dim,
                                                     AttendWork work);

// For a latent cache (wide.cuh) in bf16, f16 or fp8: blocks of 8 column_tiles columns, with
// column_tiles 2, 4 or 8 for kDecode and 2 or 8 for the others. The first two kinds are one kernel.
inline constexpr int kWideThreads = 256;
inline constexpr int kWideTokens = 32;          // tokens of the cache per tile
inline constexpr int kMaxLatentDim = 576;       // of a key
inline constexpr int kMaxLatentValueDim = 512;  // its first columns
AttendLaunch AttendLatentKernel(KvFormat format, int column_tiles, AttendWork work);

CudaKernelOf<AttendParameters> CombineKernel();        // grid {S, h / kHeadWarps}
CudaKernelOf<AttendParameters> CombineTokensKernel();  // grid {combined, h / kHeadWarps}
inline constexpr int64_t kCombineSharedBytes = int64_t{kHeadWarps} * kMaxSplits * 4;

}  // namespace bulkhead::cuda
