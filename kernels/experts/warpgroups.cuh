// Products of many pairs of an expert by warpgroup products (wgmma), for compute capability 9.0.
// Two warpgroups have 64 pairs of a piece each, and keep their sums in registers; the other one, or
// two that convert codes, copy inputs and weights, 64 of the depth at a time, into a ring of
// stages, two stages ahead, including the next piece's while sums of this one are stored.
#pragma once

#include "kernels/experts/warpgroups_copies.cuh"
#include "kernels/experts/warpgroups_pieces.cuh"
#include "kernels/matmul/codes.cuh"

namespace bulkhead::cuda {

struct alignas(8) TwoSums {
  float v[2];
};

// A thread's part of the sums of a warpgroup's 64 pairs: for pairs g and g + 8 of its warp's 16,
// outputs 8 t + 2 j and the next one; g = lane / 4, j = lane % 4. A product has kAtOnce outputs.
template <WeightFormat kFormat, int kOutputs, int kAtOnce>
class PieceSums {
 public:
  BH_DEVICE void AddStep(const unsigned char* stage) {
    const unsigned char* const inputs = stage + WarpIndex() / 4 * (kPiecePairs * kPieceRowBytes);
    const unsigned char* const weights = stage + kPieceInputBytes;
    BeginProducts();
    BH_UNROLL
    for (int at = 0; at < kPieceRowBytes; at += 32) {
      BH_UNROLL
      for (int i = 0; i < kOutputs / kAtOnce; ++i) {
        Product(sums_[i], TilesOf(inputs + at, 0),
                TilesOf(weights + i * kAtOnce * kPieceRowBytes + at, 0));
      }
    }
    CommitProducts();
    WaitForEarlierProducts<1>();  // the previous stage may be overwritten
  }

  BH_DEVICE void Store(const ExpertProductParameters& p, const Piece& piece) {
    BH_UNROLL
    for (int i = 0; i < kOutputs / kAtOnce; ++i) WaitForProducts<0>(sums_[i]);
    const int lane_output = LaneIndex() % 4 * 2;
    const bool as_twos = p.out_in_twos && piece.outputs >= kOutputs;
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t pair = piece.tile.begin + WarpIndex() * 16 + LaneIndex() / 4 + 8 * i;
      if (pair >= piece.tile.end) continue;
      float* const out =
          p.out.data + pair * p.out.stride + piece.output0 - p.first_output + lane_output;
      BH_UNROLL
      for (int at = 0; at < kOutputs; at += 8) {
        float* const two = &sums_[at / kAtOnce][at % kAtOnce / 2 + 2 * i];
        if constexpr (kFormat == WeightFormat::kNvfp4) {
          const auto weight = WeightOf<kFormat>(p, piece.tile.expert);
          two[0] *= FactorOf(weight, piece.output0 + at + lane_output);
          two[1] *= FactorOf(weight, piece.output0 + at + lane_output + 1);
        }
        if (as_twos) {
          StoreVector(out + at, TwoSums{{two[0], two[1]}});
        } else {
          if (at + lane_output < piece.outputs) out[at] = two[0];
          if (at + lane_output + 1 < piece.outputs) out[at + 1] = two[1];
        }
      }
    }
  }

 private:
  BH_DEVICE static void Product(float (&sums)[kAtOnce / 2], uint64_t a, uint64_t b) {
    if constexpr (kFormat == WeightFormat::kF16) {
      RowProductF16(sums, a, b, true);
    } else {
      RowProductBf16(sums, a, b, true);
    }
  }

  float sums_[kOutputs / kAtOnce][kAtOnce / 2] = {};
};

template <WeightFormat kFormat, int kOutputs, int kAtOnce>
BH_DEVICE void MultiplyPiece(const ExpertProductParameters& p, const Piece& piece, Ring& ring) {
  PieceSums<kFormat, kOutputs, kAtOnce> sums;
  BH_NO_UNROLL
  for (int at = 0; at < p.weight.depth; at += kPieceStepInputs) {
    __syncthreads();
    sums.AddStep(ring.Next());
  }
  sums.Store(p, piece);
}

template <WeightFormat kFormat, int kAtOnce>
BH_DEVICE void MultiplyPieces(const ExpertProductParameters& p) {
  constexpr int kNarrow = kPieceOutputs / 2;
  Ring ring;
  ForPieces(p, [&](const Piece& piece) {
    if (piece.pairs() <= WarpIndex() / 4 * kPiecePairs) {  // no pairs for this warpgroup
      BH_NO_UNROLL
      for (int at = 0; at < p.weight.depth; at += kPieceStepInputs) {
        ring.Next();
        __syncthreads();
      }
    } else if (piece.is_wide()) {
      MultiplyPiece<kFormat, kPieceOutputs, kAtOnce>(p, piece, ring);
    } else {
      MultiplyPiece<kFormat, kNarrow, kNarrow>(p, piece, ring);
    }
  });
}

// kThreads: per block. The others take the registers that copying threads give. If a thread begins
// with 128, no product may have the 256 outputs of a piece.
template <WeightFormat kFormat, int kThreads>
BH_DEVICE void MultiplyByWarpgroups(const ExpertProductParameters& p) {
  constexpr int kCopyThreads = kThreads - kPieceComputeThreads;
  static_assert(kCopyThreads == kWarpgroup || kCopyThreads == 2 * kWarpgroup);
  constexpr bool kAsMany = kCopyThreads == kPieceComputeThreads;
  if (int(threadIdx.x) >= kPieceComputeThreads) {
    GiveRegisters<kAsMany ? 96 : 88>();
    if constexpr (IsQuantized(kFormat)) {
      CopyCodes<kFormat, kCopyThreads>(p);
    } else {
      CopyNumbers<kFormat, kCopyThreads>(p);
    }
  } else {
    TakeRegisters<kAsMany ? 160 : 208>();
    MultiplyPieces<kFormat, kAsMany ? kPieceOutputs / 2 : kPieceOutputs>(p);
  }
}

}  // namespace bulkhead::cuda
