// The products of linear.cuh for 9 to 64 tokens with weights in codes, by warpgroup products
// (wgmma), for compute capability 9.0. A warpgroup has 128 outputs, two tiles of 16 per warp, whose
// codes become numbers in registers while the products of the previous tile run. The inputs of a
// step are in shared memory once for the block: the last warpgroup copies them, in the order that
// cuda_layout.h gives a product's inputs, and sums them.
#pragma once

#include "intrinsics.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/linear_copies.cuh"
#include "kernels/matmul/warpgroup_inputs.cuh"
#include "kernels/matmul/warpgroup_stages.h"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kGroupTiles = kWarpgroupLinearTiles;

// A warp's row tiles, copied to a separate place for each lane.
template <WeightFormat kFormat>
class TileCopies {
 public:
  static constexpr int kLoads = WeightTile<kFormat>::kLoads;
  static constexpr int kCodeBytes = WeightTile<kFormat>::kStepBytes;
  static constexpr bool kHasScales = IsFp4(kFormat);
  static constexpr int kScaleBytes = kHasScales ? Fp4ScaleWords(kFormat) * 4 : 0;
  static constexpr int kTileBytes = kCodeBytes + kScaleBytes;
  static constexpr int kPlaceBytes = kGroupTiles * kTileBytes;

  BH_DEVICE TileCopies(const PackedWeight& weight, int row_tile, int step) {
    const int last_tile = RowTiles(weight) - 1;
    BH_UNROLL
    for (int r = 0; r < kGroupTiles; ++r) {
      const int64_t tile = row_tile + r < last_tile ? row_tile + r : last_tile;
      const int64_t at = tile * (weight.depth / kDepthGranule) + step;
      codes_[r] = weight.numbers + at * kCodeBytes + LaneIndex() * 16;
      if constexpr (kHasScales) {
        scales_[r] = reinterpret_cast<const unsigned char*>(GroupScales(kFormat, weight)) +
                     at * kScaleBytes + LaneIndex() * 16;
      }
    }
  }
  // Copies the next step.
  BH_DEVICE void Copy(unsigned char* place) {
    BH_UNROLL
    for (int r = 0; r < kGroupTiles; ++r) {
      unsigned char* const to = place + r * kTileBytes + LaneIndex() * 16;
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        CpAsync16(to + i * (kWarp * 16), codes_[r] + i * (kWarp * 16), true);
      }
      codes_[r] += kCodeBytes;
      if constexpr (kHasScales) {
        if (LaneIndex() < kScaleBytes / 16) CpAsync16(to + kCodeBytes, scales_[r], true);
        scales_[r] += kScaleBytes;
      }
    }
  }
  // Reads what chunk `chunk` needs and the previous one did not.
  BH_DEVICE static void Read(const unsigned char* place, int chunk, int r,
                             WeightTile<kFormat>& tile) {
    const unsigned char* const from = place + r * kTileBytes;
    BH_UNROLL
    for (int i = (chunk * kLoads + 1) / 2; i < ((chunk + 1) * kLoads + 1) / 2; ++i) {
      tile.loads[i] = LoadVector<Words4>(from + (i * kWarp + LaneIndex()) * 16);
    }
    if (kHasScales && chunk == 0) {
      tile.scales = *reinterpret_cast<const uint32_t*>(
          from + kCodeBytes + Fp4ScaleWordOfLane(kFormat, LaneIndex()) * 4);
    }
  }

 private:
  const unsigned char* codes_[kGroupTiles];
  const unsigned char* scales_[kHasScales ? kGroupTiles : 1];
};

// A thread's part of its warpgroup's sums: of each tile rows lane / 4 and 8 more, of these columns
// 8 n + 2 (lane % 4) and the next one.
template <WeightFormat kFormat, int kTokens>
class WarpgroupSums {
 public:
  static constexpr int kSums = kTokens / 2;

  // places: for this warp's sums of parts, [one or two][tile][kSums][lane].
  BH_DEVICE explicit WarpgroupSums(float* places) : places_(places + LaneIndex()) {}

  // Begins the products of chunk `chunk` of a tile. b: the step's inputs; adds: to existing sums.
  BH_DEVICE void Begin(const WeightTile<kFormat>& tile, int chunk, int r, uint64_t b, bool adds) {
    uint32_t a[2][4];
    BH_UNROLL
    for (int half = 0; half < 2; ++half) tile.Fragment(chunk, half, a[half]);
    BeginProducts();
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      RowProductBf16(cell_[r], a[half], FurtherColumns(b, chunk * kChunkInputs + half * 16),
                     adds || half > 0);
    }
    CommitProducts();
  }
  template <int kLeft>
  BH_DEVICE void Wait(int r) {
    WaitForProducts<kLeft>(cell_[r]);
  }

  // As Sums::FinishRows. inputs: the sums of the inputs of this lane's columns.
  BH_DEVICE void FinishCell(int r, const uint32_t (&scaling)[2], const float* inputs) {
    float scale[2], zero[2];
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      scale[half] = __uint_as_float(ScaleBits(kFormat, scaling[half]));
      zero[half] = __uint_as_float(Int4ZeroAnd128Bits(scaling[half]));
    }
    BH_UNROLL
    for (int n = 0; n < kTokens / 8; ++n) {
      FloatPair of_inputs = {};
      if constexpr (kFormat == WeightFormat::kInt4) {
        of_inputs = LoadVector<FloatPair>(inputs + 8 * n);
      }
      BH_UNROLL
      for (int i = 4 * n; i < 4 * n + 4; ++i) {
        float of_cell = cell_[r][i];
        if constexpr (kFormat == WeightFormat::kInt4) {
          of_cell = fmaf(-zero[i % 4 / 2], of_inputs.v[i % 2], of_cell);
        }
        done_[r][i] = fmaf(scale[i % 4 / 2], of_cell, done_[r][i]);
      }
    }
  }

  BH_DEVICE void FinishFirstPart() {
    ForEach([&](int at, float& sum) {
      places_[at] = sum;
      sum = 0.0F;
    });
  }
  // For any pair but the last.
  BH_DEVICE void FinishSecondPart(bool is_of_first_pair) {
    if (is_of_first_pair) ForEach([&](int at, float& /*sum*/) { *Total(at) = 0.0F; });
    ForEach([&](int at, float& sum) {
      *Total(at) += places_[at] + sum;
      sum = 0.0F;
    });
  }
  // For the last pair: store(tile, i, the sum of all).
  template <typename Store>
  BH_DEVICE void FinishLastPart(bool is_of_first_pair, const Store& store) {
    ForEach([&](int at, const float& sum) {
      const float so_far = is_of_first_pair ? 0.0F : *Total(at);
      store(at / kWarp / kSums, at / kWarp % kSums, so_far + (places_[at] + sum));
    });
  }

 private:
  static constexpr int kPlaces = kGroupTiles * kSums;

  // Sums of the pairs so far.
  BH_DEVICE float* Total(int at) const { return places_ + kPlaces * kWarp + at; }
  template <typename Use>
  BH_DEVICE void ForEach(const Use& use) {
    BH_UNROLL
    for (int r = 0; r < kGroupTiles; ++r) {
      BH_UNROLL
      for (int i = 0; i < kSums; ++i) use((r * kSums + i) * kWarp, done_[r][i]);
    }
  }

  float* const places_;
  float cell_[kGroupTiles][kSums] = {};
  float done_[kGroupTiles][kSums] = {};
};

// The products of a warp's row tiles with the tokens of the step.
template <WeightFormat kFormat, int kTokens>
class TileProducts {
 public:
  static constexpr WarpgroupStages kStages{kFormat, kTokens};
  static constexpr int kPlaces = kStages.places;
  static constexpr int kPlaceBytes = kStages.weight_bytes;
  static_assert(kPlaceBytes == TileCopies<kFormat>::kPlaceBytes);

  // Requests the first weights.
  BH_DEVICE TileProducts(const PackedWeight& weight, const PairsOfBlock& pairs, int warps)
      : weight_(weight),
        pairs_(pairs),
        row_tile_((int(blockIdx.x) * warps + WarpIndex()) * kGroupTiles),
        copies_(weight, row_tile_, pairs.begin),
        sums_(reinterpret_cast<float*>(SharedMemory() + kStages.SumsAt() +
                                       WarpIndex() *
                                           WarpgroupStages::SumBytes(kTokens, 1, pairs.in_parts))) {
    places_ = SharedMemory() + kStages.SumsAt() +
              WarpgroupStages::SumBytes(kTokens, warps, pairs.in_parts) +
              WarpIndex() * (kPlaces * kPlaceBytes);
    BH_UNROLL
    for (int i = 0; i < kPlaces - 1; ++i) {
      if (i < pairs.count) copies_.Copy(places_ + i * kPlaceBytes);
      CpAsyncCommit();
    }
    if constexpr (kFollowsCells) {
      // The compiler would keep uniform values where it must wait for their loads at once.
      const int zero = static_cast<int>(AndXor(threadIdx.x, 0, 0));
      if (pairs.count > 0) cells_.Begin(weight, row_tile_, 2 * pairs.begin + zero);
    }
  }

  // store(token, row, sum) for each.
  template <typename Store>
  BH_DEVICE void Multiply(const Store& store) {
    const int last_part = 2 * pairs_.num_pairs - 1;
    int step = 0;
    BH_NO_UNROLL
    for (int part = 0;; ++part) {
      const int all = (part + 1) * pairs_.part_steps;
      const int end = all < pairs_.count ? all : pairs_.count;
      BH_NO_UNROLL
      for (; step < end; ++step) MultiplyStep(step, step + 1 == end);
      if (part == last_part) break;
      if (part % 2 == 0) {
        sums_.FinishFirstPart();
      } else {
        sums_.FinishSecondPart(part == 1);
      }
    }
    CpAsyncWait<0>();
    sums_.FinishLastPart(last_part == 1, [&](int r, int i, float sum) {
      store(i / 4 * 8 + LaneIndex() % 4 * 2 + i % 2,
            (row_tile_ + r) * kTileRows + LaneIndex() / 4 + i % 4 / 2 * 8, sum);
    });
  }

 private:
  // nvfp4 is one cell, which ends with each part; there are no registers to preload its factors.
  static constexpr bool kFollowsCells = kHasCells<kFormat> && kFormat != WeightFormat::kNvfp4;

  BH_DEVICE void MultiplyStep(int step, bool ends_part) {
    if (step % kStages.barrier_steps == 0) __syncthreads();
    CpAsyncWait<kPlaces - 2>();
    __syncwarp();  // lanes read scales that other lanes have copied
    const unsigned char* const place = places_ + place_ * kPlaceBytes;
    if (step + kPlaces - 1 < pairs_.count) {
      copies_.Copy(places_ + (place_ > 0 ? place_ - 1 : kPlaces - 1) * kPlaceBytes);
    }
    CpAsyncCommit();
    place_ = place_ + 1 < kPlaces ? place_ + 1 : 0;
    const uint64_t b = TilesOf(InputsOf<kFormat, kTokens>(step), 0);
    WeightTile<kFormat> tiles[kGroupTiles];
    if constexpr (kFollowsCells) {
      if (cells_.until == 0) cells_.Advance();
    }
    const bool ends_first = kFollowsCells ? OfAllLanes(cells_.until == 1) : !kHasCells<kFormat>;
    BH_UNROLL
    for (int r = 0; r < kGroupTiles; ++r) {
      TileCopies<kFormat>::Read(place, 0, r, tiles[r]);
      sums_.Begin(tiles[r], 0, r, b, adds_);
    }
    BH_UNROLL
    for (int r = 0; r < kGroupTiles; ++r) {
      sums_.template Wait<1>(r);
      if (ends_first) FinishCell(2 * step, r, tiles[r]);
      TileCopies<kFormat>::Read(place, 1, r, tiles[r]);
      sums_.Begin(tiles[r], 1, r, b, !ends_first);
    }
    bool ends = !kHasCells<kFormat> || ends_part;
    if constexpr (kFollowsCells) {
      if (ends_first) cells_.Advance();
      cells_.until -= 2;
      ends = OfAllLanes(ends || cells_.until == 0);
    }
    sums_.template Wait<1>(0);
    if (ends) FinishCell(2 * step + 1, 0, tiles[0]);
    sums_.template Wait<0>(1);
    if (ends) FinishCell(2 * step + 1, 1, tiles[1]);
    adds_ = !ends;
  }

  // Tells the compiler that all lanes agree.
  BH_DEVICE static bool OfAllLanes(bool x) { return __ballot_sync(kFullMask, x) != 0; }

  // A chunk ends the cell, or the part.
  BH_DEVICE void FinishCell(int chunk, int r, const WeightTile<kFormat>& tile) {
    if constexpr (kFollowsCells) {
      const float* const inputs = SumsOfInputs<kFormat, kTokens>(chunk) + LaneIndex() % 4 * 2;
      sums_.FinishCell(r, cells_.scaling[r], inputs);
    } else if constexpr (kHasCells<kFormat>) {
      const int last_tile = RowTiles(weight_) - 1;
      const int64_t row_tile = row_tile_ + r < last_tile ? row_tile_ + r : last_tile;
      const uint32_t* const factors = weight_.scaling + row_tile * kTileRows + LaneIndex() / 4;
      sums_.FinishCell(r, {factors[0], factors[8]}, nullptr);
    } else {
      const int at = 2 * (chunk % 2);
      sums_.FinishCell(r, {E8m0ScaleBits(tile.scales, at), E8m0ScaleBits(tile.scales, at + 1)},
                       nullptr);
    }
  }

  const PackedWeight& weight_;
  const PairsOfBlock pairs_;
  const int row_tile_;
  TileCopies<kFormat> copies_;
  WarpgroupSums<kFormat, kTokens> sums_;
  unsigned char* places_;
  int place_ = 0;
  bool adds_ = false;
  Cells<kGroupTiles> cells_;
};

}  // namespace bulkhead::cuda
