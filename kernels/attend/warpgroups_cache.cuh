// Attention by warpgroups (warpgroups.cuh): the layout of shared memory, and the warpgroup that
// copies keys and values into it.
#pragma once

#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/attention_shape.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {

// Shared memory: queries [dims / 64][columns][64], then two stages of keys [tokens / 64][dims][64]
// and of values [dims / 64][tokens][64], in tiles as in wgmma_intrinsics.h.
template <int kDimsOfHead, int kTokensOfTile, int kWarpgroups>
struct WarpgroupShape {
  static constexpr int kDims = kDimsOfHead;
  static constexpr int kTokens = kTokensOfTile;
  static constexpr int kGroups = kWarpgroups;
  static constexpr int kStages = 2;
  static constexpr int kColumns = 64 * kGroups;
  static constexpr int kComputeThreads = kWarpgroup * kGroups;
  static constexpr int kCopyWarps = 4;
  static constexpr int kThreads = kComputeThreads + kWarpgroup;
  // Per computing thread and per copying thread: together 64 Ki, each a multiple of 8.
  static constexpr int kComputeRegisters = kGroups == 2 ? 232 : 160;
  static constexpr int kCopyRegisters = kGroups == 2 ? 40 : 32;
  static constexpr int kQueryBytes = kColumns * kDims * 2;
  static constexpr int kTileBytes = kTokens * kDims * 2;  // of keys, of values
  static_assert(kTokens % (32 * kCopyWarps) == 0);
  static constexpr int kKeysAt = kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kBytes = kValuesAt + kStages * kTileBytes;
  static_assert(kBytes <= 227 << 10);
};

// Offset of 16 bytes in a row of 128 bytes.
BH_DEVICE int ChunkOfRow(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

// Copies by the warps of the copying warpgroup. The addresses of a tile are found before its copies
// may begin.
template <typename Shape>
class TileCopies {
 public:
  BH_DEVICE TileCopies(const HeadCache& head, const CacheRange& range)
      : head_(head), range_(range), warp_((int(threadIdx.x) - Shape::kComputeThreads) / kWarp) {}

  BH_DEVICE void FindKeys(int token0) {
    BH_UNROLL
    for (int i = 0; i < kSpans; ++i) {
      const int token = token0 + 8 * ChunkOf(i);
      seen_[i] = token + 7 >= range_.first && token < range_.end;
      keys_[i] = head_.cache->base;
      if (seen_[i]) keys_[i] = head_.Keys(token) + head_.InBlock(token) * 2;
    }
  }
  // 8 dims of 32 tokens at a time, so that a warp writes to different banks.
  BH_DEVICE void CopyKeys(unsigned char* keys) const {
    const int dim0 = LaneIndex() % 8;
    const int row_bytes = 2 * head_.cache->block_tokens;
    BH_UNROLL
    for (int i = 0; i < kSpans; ++i) {
      const int chunk = ChunkOf(i);
      const int step = seen_[i] ? row_bytes : 0;
      const unsigned char* from = keys_[i] + dim0 * step;
      unsigned char* const to =
          keys + chunk / 8 * (Shape::kDims * 128) + ChunkOfRow(dim0, chunk % 8);
      BH_UNROLL
      for (int dim = 0; dim < Shape::kDims; dim += 8) {
        CpAsync16(to + dim * 128, from, seen_[i]);
        from += 8 * step;
      }
    }
  }

  BH_DEVICE void FindValues(int token0) {
    token0_ = token0;
    BH_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      const int token = token0 + InTile(i);
      values_[i] = head_.cache->base;
      if (token + 15 >= range_.first && token < range_.end) {
        values_[i] = head_.Values(token) + head_.InBlock(token) * (Shape::kDims * 2);
      }
    }
  }
  // 64 dims of 4 tokens at a time, out of 16 tokens within one block of the cache.
  BH_DEVICE void CopyValues(unsigned char* values) const {
    const int chunk = LaneIndex() % 8;
    BH_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      const unsigned char* const from =
          values_[i] + LaneIndex() / 8 * (Shape::kDims * 2) + chunk * 16;
      BH_UNROLL
      for (int row0 = 0; row0 < 16; row0 += 4) {
        const int of = token0_ + InTile(i) + row0 + LaneIndex() / 8;
        const bool valid = of >= range_.first && of < range_.end;
        unsigned char* const to = values + InTile(i) * 128 + row0 / 8 * 1024 +
                                  ChunkOfRow(row0 % 8 + LaneIndex() / 8, chunk);
        BH_UNROLL
        for (int dims = 0; dims < Shape::kDims / 64; ++dims) {
          CpAsync16(to + dims * (Shape::kTokens * 128),
                    from + row0 * (Shape::kDims * 2) + dims * 128, valid);
        }
      }
    }
  }

 private:
  static constexpr int kSpans = Shape::kTokens / 32 / Shape::kCopyWarps;
  static constexpr int kBlocks = Shape::kTokens / 16 / Shape::kCopyWarps;

  // The 16 bytes of a dim's tokens that this lane copies.
  BH_DEVICE int ChunkOf(int span) const {
    return (span * Shape::kCopyWarps + warp_) * 4 + LaneIndex() / 8;
  }
  BH_DEVICE int InTile(int block) const { return (block * Shape::kCopyWarps + warp_) * 16; }

  const HeadCache head_;
  const CacheRange range_;
  const int warp_;
  int token0_ = 0;
  bool seen_[kSpans] = {};
  const unsigned char* keys_[kSpans] = {};
  const unsigned char* values_[kBlocks] = {};
};

// The keys and values of a stage.
template <typename Shape>
BH_DEVICE unsigned char* KeysOf(int stage) {
  return SharedMemory() + Shape::kKeysAt + stage * Shape::kTileBytes;
}
template <typename Shape>
BH_DEVICE unsigned char* ValuesOf(int stage) {
  return SharedMemory() + Shape::kValuesAt + stage * Shape::kTileBytes;
}

// The copying warpgroup: a tile's values are copied with the next tile's keys. At each
// __syncthreads the copies so far are visible to the products, and no thread still uses the tiles
// that are replaced next.
template <typename Shape>
BH_DEVICE void CopyTiles(const HeadCache& head, const CacheRange& range) {
  TileCopies<Shape> copies(head, range);
  int token0 = range.first / Shape::kTokens * Shape::kTokens;
  copies.FindKeys(token0);
  copies.CopyKeys(KeysOf<Shape>(0));
  CpAsyncCommit();
  int stage = 0;
  for (; token0 < range.end; token0 += Shape::kTokens) {
    copies.FindValues(token0);
    copies.FindKeys(token0 + Shape::kTokens);
    CpAsyncWait<0>();
    FenceForProducts();
    __syncthreads();
    copies.CopyValues(ValuesOf<Shape>(stage));
    stage = 1 - stage;
    if (token0 + Shape::kTokens < range.end) copies.CopyKeys(KeysOf<Shape>(stage));
    CpAsyncCommit();
  }
  CpAsyncWait<0>();
  FenceForProducts();
  __syncthreads();
}

}  // namespace bulkhead::cuda
