// The rows and weights of products of pairs of a token and an expert.
#pragma once

#include "intrinsics.h"
#include "kernels/experts/cuda_kernels.h"

namespace bulkhead::cuda {

// A tile of the list, without pairs whose inputs are absent. This changes no pair's sum: columns of
// a tile are independent.
BH_DEVICE ExpertTile TileAt(const ExpertProductParameters& p, int index) {
  ExpertTile tile = p.tiles[index];
  if (tile.begin < p.first_pair) tile.begin = p.first_pair;
  if (tile.end > p.end_pair) tile.end = p.end_pair;
  return tile;
}
BH_DEVICE bool IsEmpty(const ExpertTile& tile) { return tile.expert < 0 || tile.begin >= tile.end; }

BH_DEVICE int RowOf(const ExpertProductParameters& p, int pair) {
  return p.pair_row == nullptr ? pair - p.first_pair : p.pair_row[pair];
}

template <WeightFormat kFormat>
BH_DEVICE PackedWeight WeightOf(const ExpertProductParameters& p, int expert) {
  return FurtherWeight<kFormat>(p.weight, expert * p.expert_bytes);
}

}  // namespace bulkhead::cuda
