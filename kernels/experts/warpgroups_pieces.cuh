// How the products of many pairs of an expert by warpgroups (warpgroups.cuh) are split, and the
// layout of shared memory: stages of inputs [pairs][64], then weights [outputs][64] in 16 bits,
// rows of 128 bytes whose 16 bytes i are at i ^ row % 8.
#pragma once

#include "kernels/experts/products.cuh"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kPieceStepInputs = 64;
inline constexpr int kPieceStages = 4;
inline constexpr int kStepsAhead = 2;  // the other stages may still be read
inline constexpr int kPieceRowBytes = kPieceStepInputs * 2;
inline constexpr int kPieceInputBytes = kManyTilePairs * kPieceRowBytes;
inline constexpr int kPieceStageBytes = kPieceInputBytes + kPieceOutputs * kPieceRowBytes;
inline constexpr int kPieceComputeThreads = 2 * kWarpgroup;
inline constexpr int kPiecePairs = kManyTilePairs / 2;  // per warpgroup
static_assert(kPieceStages * kPieceStageBytes == kExpertPieceSharedBytes);
static_assert(kPieceStepInputs == kDepthGranule);

// A tile of 128 pairs by 256 outputs of its expert; the last piece of a row has 128 if no more are
// left.
struct Piece {
  ExpertTile tile;
  int output0;
  int outputs;  // up to the end

  BH_DEVICE int pairs() const { return tile.end - tile.begin; }
  BH_DEVICE bool is_wide() const { return outputs > kPieceOutputs / 2; }
};

// for_piece(piece) for each of the block's. Pieces that run at the same time have adjacent tiles
// and outputs: eight tiles of one expert read its weights from memory once.
template <typename ForPiece>
BH_DEVICE void ForPieces(const ExpertProductParameters& p, const ForPiece& for_piece) {
  constexpr int kTilesAtOnce = 8;
  const int columns = (p.end_output - p.first_output + kPieceOutputs - 1) / kPieceOutputs;
  BH_NO_UNROLL
  for (int i = int(blockIdx.x); i < p.num_tiles * columns; i += int(gridDim.x)) {
    const int first_tile = i / (kTilesAtOnce * columns) * kTilesAtOnce;
    const int tiles_left = p.num_tiles - first_tile;
    const int tiles = tiles_left < kTilesAtOnce ? tiles_left : kTilesAtOnce;
    const int at = i - first_tile * columns;
    const ExpertTile tile = TileAt(p, first_tile + at % tiles);
    if (IsEmpty(tile)) continue;
    const int output0 = p.first_output + at / tiles * kPieceOutputs;
    for_piece(Piece{tile, output0, p.end_output - output0});
  }
}

// The stages in rotation.
class Ring {
 public:
  BH_DEVICE unsigned char* Next() {
    unsigned char* const stage = SharedMemory() + stage_ * kPieceStageBytes;
    stage_ = stage_ + 1 == kPieceStages ? 0 : stage_ + 1;
    return stage;
  }

 private:
  int stage_ = 0;
};

}  // namespace bulkhead::cuda
