// The shared memory layout of the kernels of warpgroups.cuh. Plain C++: kernels and host code
// include this.
#pragma once

#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

// For a kernel for up to `tokens` tokens. Places hold steps being copied, for each multiplying warp
// and for the inputs.
struct WarpgroupStages {
  int tokens = 0;
  int weight_bytes = 0;  // per step and warp
  int places = 0;
  int barrier_steps = 0;
  int sum_slots = 0;  // sums of inputs, one per chunk

  constexpr WarpgroupStages(WeightFormat format, int max_tokens) : tokens(max_tokens) {
    const bool few_tokens = max_tokens < 64;
    const bool few_bits = WeightBits(format) == 4;
    const int tile_bytes =
        WeightBits(format) / 4 * 512 + (IsFp4(format) ? Fp4ScaleWords(format) * 4 : 0);
    weight_bytes = kWarpgroupLinearTiles * tile_bytes;
    places = few_tokens ? 6 : few_bits ? 4 : 3;
    // For two of nvfp4 shared memory is too small.
    barrier_steps = few_tokens ? 4 : few_bits && format != WeightFormat::kNvfp4 ? 2 : 1;
    sum_slots = format == WeightFormat::kInt4 ? 4 * barrier_steps : 0;
  }
  // In this order: inputs and their sums, each for two times barrier_steps; sums of two parts of
  // the depth (of one if pairs of parts go to memory); the places.
  constexpr int SumsAt() const { return 2 * barrier_steps * tokens * 128 + sum_slots * tokens * 4; }
  static constexpr int SumBytes(int tokens, int warps, bool in_parts) {
    return tokens / 2 * kWarpgroupLinearTiles * warps * 128 * (in_parts ? 1 : 2);
  }
  constexpr int Bytes(int warps, bool in_parts) const {
    return SumsAt() + SumBytes(tokens, warps, in_parts) +
           places * (warps * weight_bytes + tokens * 128);
  }
};

}  // namespace bulkhead::cuda
