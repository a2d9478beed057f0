// The columns of a block of attention, and the layout of its shared memory.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/cuda_kernels.h"

namespace bulkhead::cuda {

// The columns of a block: tokens [token0, token0 + tokens) of one sequence times query heads
// [head0, head0 + heads).
struct Columns {
  int token0 = 0;
  int tokens = 0;
  int head0 = 0;
  int heads = 0;

  BH_DEVICE int size() const { return tokens * heads; }
  BH_DEVICE int Token(int column) const { return token0 + column / heads; }
  BH_DEVICE int Head(int column) const { return head0 + column % heads; }
};

template <KvFormat kFormat, int kDimTiles, int kTiles>
struct AttendShape {
  static constexpr bool kInCodes = KvElementBits(kFormat) <= 8;
  static constexpr bool kQuantized = IsQuantized(kFormat);  // codes with per-token scaling
  static constexpr int kDims = kDimTiles * 16;
  static constexpr int kWarpColumns = kTiles * 8;
  // With many columns, registers hold sums: queries stay in shared memory.
  static constexpr bool kQueriesStay = kTiles > 2;
  // Parts of 16 tokens that a warp takes at once.
  static constexpr int kParts = kQueriesStay ? 2 : kAttendTokens / 16;
  static constexpr int kColumns = kWarpColumns * kAttendWarps;
  static constexpr int kStages = kInCodes ? 1 : 2;
  using Tile = CacheTileShape<kDims>;
  static constexpr int kTileBytes = kQuantized ? Tile::kQuantizedBytes : Tile::kBytes;
  static constexpr int kQueryRowBytes = kDims * 2 + kRowGapBytes;
  static constexpr int kQuerySumsAt = kColumns * kQueryRowBytes;
  static constexpr int kTilesAt = kQuerySumsAt + kColumns * 4;
  // The merge reuses the tiles: [3][column], then [column][dim].
  static constexpr int kMergeBytes = kColumns * (3 + kDims) * 4;
  static constexpr int kTilesBytes =
      kStages * kTileBytes > kMergeBytes ? kStages* kTileBytes : kMergeBytes;
  static constexpr int kBytes = kTilesAt + kTilesBytes;
  static_assert(kBytes <= 163 << 10);  // limit of a block on sm_80
};

}  // namespace bulkhead::cuda
