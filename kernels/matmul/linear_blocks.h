// How products of few tokens cut the depth. The weight's shape and the GPU's shared memory say into
// how many parts; a warp takes one or two of them, and pairs of parts are added first, so a row's
// bits do not depend on the tokens of a step.
#pragma once

#include <cstdint>

#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

struct LinearBlocks {
  int parts = 0;
  int threads = 0;
  int64_t shared_bytes = 0;
};

// Matrices of few outputs have few blocks: more warps each keep more bytes in flight.
inline constexpr int64_t kManyPartsMaxRows = 5120;
inline constexpr int64_t kManyPartsMinDepth = 1536;
inline constexpr int64_t kFewPartsMaxDepth = 511;
// Instead of a matrix's rows, where a launch has several matrices.
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

}  // namespace bulkhead::cuda
