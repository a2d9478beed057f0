// The kernels of a mixture of experts: their parameters and launch shapes.
//
// The number of pairs of an expert is known only on the device. Grids follow from the total number
// of pairs: a product has as many blocks as tiles of pairs may be needed, and blocks after the last
// tile end at once.
#pragma once

#include <stdint.h>

#include <optional>

#include "base/router_options.h"
#include "kernels/cuda/parameters.h"
#include "kernels/packing/cuda_layout.h"
#include "memory/cuda_kernel.h"
#include "memory/weight_format.h"

namespace bulkhead::cuda {

// Pairs of one expert that a block multiplies together; expert -1: none.
struct alignas(16) ExpertTile {
  int32_t expert = -1;
  int32_t begin = 0;
  int32_t end = 0;
};

// Maximum number of tiles of up to `tile_pairs` pairs for any routing of this many pairs: each
// expert has one partial tile, and at most as many experts as pairs have any.
constexpr int64_t MaxExpertTiles(int64_t pairs, int num_experts, int tile_pairs) {
  const int64_t used = pairs < num_experts ? pairs : num_experts;
  return (pairs - used) / tile_pairs + used;
}

// Pairs that a block multiplies together, so that most experts have one tile and their weights are
// read once. The choice of kernel, and so a row's bits, does not depend on a step's padding.
constexpr int kManyTilePairs = 128;
constexpr int64_t kFewPairsOfExpert = 64;  // maximum average, for products of few rows
constexpr int TilePairs(int64_t tokens, int num_experts, int experts_per_token) {
  const int64_t padded = (tokens + 7) / 8 * 8 * experts_per_token;
  if (padded > kFewPairsOfExpert * num_experts) return kManyTilePairs;
  const int64_t pairs = tokens * experts_per_token;
  return pairs <= int64_t{4} * num_experts ? 8 : pairs <= int64_t{10} * num_experts ? 16 : 32;
}
// For a step of up to this many pairs: with tiles of 32 at most 64 per expert.
constexpr int64_t MaxExpertTilesOfStep(int64_t max_pairs, int num_experts) {
  const int64_t few = kFewPairsOfExpert / 32 + 1;
  const int64_t of_many = max_pairs / kManyTilePairs + num_experts;
  return of_many > few * num_experts ? of_many : few * num_experts;
}

// Each token's experts and weights: one warp per token, grid {T / kRouteWarps}.
struct RouteParameters {
  ConstRows logits;               // [T, E]
  const float* bias = nullptr;    // [E] or null
  const float* scales = nullptr;  // [E] or null
  RouterOptions options;
  int tokens = 0;
  int num_experts = 0;
  int experts_per_token = 0;
  int32_t* experts = nullptr;  // [T, k]
  float* weights = nullptr;    // [T, k]
  // From ExpertRouting.
  const int32_t* token_seq = nullptr;
  const int32_t* seq_slot = nullptr;
  int padding_slot = -1;
};
inline constexpr int kRouteWarps = 4;
int64_t RouteSharedBytes(const RouteParameters& p);
CudaKernelOf<RouteParameters> RouteKernel();

// Pairs by expert, then by token; grid {E / kSortWarps}.
struct SortPairsParameters {
  const int32_t* experts = nullptr;  // [P]
  const float* weights = nullptr;    // [P]
  int pairs = 0;
  int num_experts = 0;
  int experts_per_token = 0;
  int32_t* expert_begin = nullptr;  // [E + 1]
  int32_t* pair_token = nullptr;    // [P]
  float* pair_weight = nullptr;     // [P]
  int32_t* pair_at = nullptr;       // [P] new positions of each token's pairs
  int tile_pairs = 0;
  int max_tiles = 0;
  ExpertTile* tiles = nullptr;  // [max_tiles]
};
inline constexpr int kSortWarps = 8;
inline constexpr int kSortSharedBytes = 2 * kMaxExperts * 4;
CudaKernelOf<SortPairsParameters> SortPairsKernel();

// out[p][n - first_output] = x[row of p] weight[n] of p's expert, for pairs [first_pair, end_pair)
// and outputs [first_output, end_output), which begin at a tile border.
struct ExpertProductParameters {
  const ExpertTile* tiles = nullptr;
  const uint16_t* x = nullptr;        // rows of weight.depth, in the products' input format
  const int32_t* pair_row = nullptr;  // [P] rows of x; null: p - first_pair
  int first_pair = 0;
  int end_pair = 0;
  PackedWeight weight;       // of expert 0
  int64_t expert_bytes = 0;  // from one expert's to the next's
  int first_output = 0;
  int end_output = 0;
  Rows out;
  int parts = 0;  // as in LinearParameters
  // Only for ExpertPiecesKernel.
  int num_tiles = 0;
  bool out_in_twos = false;  // rows of out are aligned to 8 bytes
};
// Tiles of 8 column_tiles pairs, column_tiles 1, 2 or 4: grid {outputs / LinearRows, tiles}; block
// and shared memory as in LinearKernel.
CudaKernelOf<ExpertProductParameters> ExpertLinearKernel(WeightFormat format, int column_tiles);
// Tiles of kGemmTile pairs: grid {outputs / kGemmTile, tiles}, block as in GemmKernel.
inline constexpr int kExpertGemmSharedBytes = (80 << 10) + 128 * 4;
CudaKernelOf<ExpertProductParameters> ExpertGemmKernel(WeightFormat format);
// The same by warpgroup products (warpgroups.cuh), for compute capability 9.0; none if the build
// lacks them. Blocks with the kernel's maximum number of threads, one per multiprocessor, share the
// pieces of all tiles: any number of blocks.
inline constexpr int kPieceOutputs = 256;
inline constexpr int kExpertPieceSharedBytes = 192 << 10;
std::optional<CudaKernelOf<ExpertProductParameters>> ExpertPiecesKernel(WeightFormat format);

// out[t][n] = the sum of pairs[p][n] over the token's pairs in ascending order of experts, +
// out[t][n] if `adds`; grid {T, width / kSumCols}. `vec4` as for activations.
struct SumPairsParameters {
  ConstRows pairs;
  const int32_t* pair_at = nullptr;
  int experts_per_token = 0;
  int width = 0;
  bool adds = false;
  Rows out;
};
inline constexpr int kSumCols = 4 * kRowThreads;
CudaKernelOf<SumPairsParameters> SumPairsKernel(bool vec4);

}  // namespace bulkhead::cuda
