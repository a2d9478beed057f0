// How products of few tokens split the depth. The number of parts depends on the weight's shape and
// the GPU's shared memory; a warp takes one or two parts, and pairs of parts are added first, so a
// row's bits do not depend on the tokens of a step.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

struct LinearBlocks {
  int parts = 0;
  int threads = 0;
  int64_t shared_bytes = 0;
  LinearWidth width = LinearWidth::kNarrow;
};

// Matrices with few outputs have few blocks: more warps in each keep more bytes in flight.
inline constexpr int64_t kManyPartsMaxRows = 5120;
inline constexpr int64_t kManyPartsMinDepth = 1536;
inline constexpr int64_t kFewPartsMaxDepth = 511;
// Used instead of a matrix's rows if a launch has several matrices.
inline constexpr int64_t kRowsOfMany = kManyPartsMaxRows + 1;

inline LinearBlocks LinearBlocksOf(WeightFormat format, int64_t rows, int64_t depth,
                                   int token_tiles, int64_t max_shared_bytes) {
  const auto bytes_of = [&](int warps, int tiles) {
    return int64_t{warps} * kLinearPlaces * LinearStepBytes(format, tiles);
  };
  LinearBlocks blocks;
  blocks.parts = rows <= kManyPartsMaxRows && depth >= kManyPartsMinDepth ? 16
                 : depth > kFewPartsMaxDepth                              ? 8
                                                                          : 4;
  while (bytes_of(blocks.parts / 2, 4) > max_shared_bytes) blocks.parts /= 2;
  const int max_warps = (token_tiles == 4 ? kLinearMaxThreads<4> : kLinearMaxThreads<1>) / 32;
  int warps = blocks.parts;
  if (warps > max_warps || bytes_of(warps, token_tiles) > max_shared_bytes) warps /= 2;
  blocks.threads = warps * 32;
  blocks.shared_bytes = bytes_of(warps, token_tiles);
  return blocks;
}

// Bytes of weights and inputs read by the busiest multiprocessor. `token_blocks`: the grid's y.
inline int64_t BytesRead(const LinearBlocks& blocks, WeightFormat format, int64_t rows,
                         int64_t depth, int token_tiles, int token_blocks, int num_sms) {
  const int64_t row_blocks = CeilDiv(rows, LinearRows(format, blocks.width));
  return CeilDiv(row_blocks * token_blocks, num_sms) * (depth / kDepthGranule) *
         LinearStepBytes(format, token_tiles, blocks.width);
}

// The same with wide blocks, if the busiest multiprocessor then reads less: each block reads the
// inputs of its tokens, which with many tokens exceed its rows.
inline LinearBlocks WiderLinearBlocksOf(const LinearBlocks& narrow, WeightFormat format,
                                        int64_t rows, int64_t depth, int token_tiles,
                                        int token_blocks, int64_t max_shared_bytes, int num_sms) {
  if (!IsQuantized(format) || token_tiles == 1) return narrow;
  LinearBlocks wide = narrow;
  wide.width = LinearWidth::kWide;
  wide.threads = narrow.parts * 32;
  wide.shared_bytes =
      int64_t{narrow.parts} * kLinearPlaces * LinearStepBytes(format, token_tiles, wide.width);
  const auto bytes_read = [&](const LinearBlocks& blocks) {
    return BytesRead(blocks, format, rows, depth, token_tiles, token_blocks, num_sms);
  };
  const bool fits = wide.threads <= kLinearMaxThreads<4, LinearWidth::kWide> &&
                    wide.shared_bytes <= max_shared_bytes;
  return fits && bytes_read(wide) < bytes_read(narrow) ? wide : narrow;
}

}  // namespace bulkhead::cuda
