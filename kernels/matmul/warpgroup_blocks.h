// How products of 9 to 64 tokens with weights in codes are split into blocks of
// LinearWarpgroupKernel. The depth has the parts of LinearBlocksOf, and their sums are added in the
// same order, so the choice of kernel and blocks affects only speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/arithmetic.h"
#include "kernels/matmul/linear_blocks.h"
#include "kernels/matmul/warpgroup_stages.h"

namespace bulkhead::cuda {

struct WarpgroupBlocks {
  int tokens = 0;         // of the kernel
  int warps = 0;          // multiplying warps
  bool in_parts = false;  // one pair of parts per block; another launch adds them up
  int64_t shared_bytes = 0;
  // By the busiest multiprocessor. If there are no such blocks: more than any other product.
  int64_t bytes_read = std::numeric_limits<int64_t>::max();

  LaunchShape Launch(int64_t rows, int parts) const {
    const int64_t rows_of_block = int64_t{warps} * kWarpgroupLinearTiles * kTileRows;
    return {.grid = {static_cast<int>(CeilDiv(rows, rows_of_block)), 1, in_parts ? parts / 2 : 1},
            .block = {warps * 32 + kWarpgroupLinearCopyThreads, 1, 1},
            .shared_bytes = shared_bytes};
  }
};

// Bytes that a multiprocessor could read in the 2 us of the launch that adds parts up, if all
// together read 5 TB/s from L2; estimated, not measured on a GPU.
inline constexpr int64_t kAddPartsBytes = 76 << 10;

// The blocks whose busiest multiprocessor reads least. max_part_sums: available room.
inline WarpgroupBlocks WarpgroupBlocksOf(WeightFormat format, int64_t rows, int64_t depth,
                                         int parts, int tokens, int64_t max_part_sums,
                                         int64_t max_shared_bytes, int num_sms) {
  WarpgroupBlocks best;
  const WarpgroupStages stages(format, tokens <= 16 ? 16 : tokens <= 32 ? 32 : 64);
  const int64_t steps = depth / kDepthGranule;
  const int64_t part_sums = int64_t{parts} / 2 * tokens * rows;
  for (const int warps : {8, 4}) {
    for (const bool in_parts : {false, true}) {
      WarpgroupBlocks blocks{stages.tokens, warps, in_parts, stages.Bytes(warps, in_parts)};
      if (blocks.shared_bytes > max_shared_bytes) continue;
      if (in_parts && (parts < 4 || part_sums > max_part_sums)) continue;
      const LaunchShape shape = blocks.Launch(rows, parts);
      const int64_t rounds = CeilDiv(int64_t{shape.grid[0]} * shape.grid[2], int64_t{num_sms});
      const int64_t block_steps = in_parts ? 2 * CeilDiv(steps, int64_t{parts}) : steps;
      blocks.bytes_read = rounds * block_steps * (warps * stages.weight_bytes + tokens * 128);
      if (in_parts) {
        const int64_t written = int64_t{warps} * kWarpgroupLinearTiles * kTileRows * tokens * 4;
        blocks.bytes_read +=
            rounds * written + CeilDiv(part_sums * 4, int64_t{num_sms}) + kAddPartsBytes;
      }
      if (blocks.bytes_read < best.bytes_read) best = blocks;
    }
  }
  return best;
}

}  // namespace bulkhead::cuda
