// How GemmOfCodes splits the depth. The parts depend only on the weight's shape, and each is summed
// from zero and added in order, so a row's bits depend neither on the tokens of a step nor on the
// number of multiprocessors. Whether a block has all parts of its tile or one part affects only
// speed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

struct GemmParts {
  int count = 1;
  int steps = 0;  // per part except the last
};

// Shorter parts would end before their first inputs have arrived.
inline constexpr int64_t kMinPartInputs = 256;
// For one tile of tokens: more blocks than the largest GPUs have multiprocessors gain nothing.
inline constexpr int64_t kMaxPartBlocks = 192;
// For all sums of parts.
inline constexpr int64_t kMaxPartBytes = int64_t{32} << 20;

inline GemmParts GemmPartsOf(int64_t rows, int64_t depth) {
  const int64_t tiles = CeilDiv(rows, kGemmTile);
  int64_t parts = kMaxGemmParts;
  while (parts > 1 && (parts * tiles > kMaxPartBlocks || parts * kMinPartInputs > depth)) {
    parts /= 2;
  }
  const int64_t steps = depth / kGemmStepInputs;
  const int64_t part_steps = CeilDiv(steps, parts);
  return {static_cast<int>(CeilDiv(steps, part_steps)), static_cast<int>(part_steps)};
}

// Maximum number of sums of parts for a product with up to max_inputs and max_tokens.
inline int64_t MaxPartSums(int64_t max_inputs, int64_t max_tokens) {
  if (max_inputs < 2 * kMinPartInputs) return 0;
  return std::min(kMaxPartBlocks * kGemmTile * max_tokens, kMaxPartBytes / 4);
}

// Whether blocks with one part each take less time, in steps of a block. A multiprocessor has one
// block. A step takes at least 400 clocks of issuing (kernels/cuda/sass.txt). The launch that adds
// the parts takes about 2 us, 6 steps; the sums of a tile's part, 64 KiB, are written and read at
// about 17 bytes a clock, 12 steps. Estimated, not measured on a GPU.
inline bool TakesLessInParts(const GemmParts& parts, int64_t tiles, int num_sms) {
  constexpr int64_t kLaunchSteps = 6;
  constexpr int64_t kTileSteps = 12;
  const int64_t blocks = tiles * parts.count;
  const int64_t joining = kLaunchSteps + CeilDiv(blocks * kTileSteps, int64_t{num_sms});
  return CeilDiv(blocks, int64_t{num_sms}) * parts.steps + joining <
         CeilDiv(tiles, int64_t{num_sms}) * parts.count * parts.steps;
}

}  // namespace bulkhead::cuda
