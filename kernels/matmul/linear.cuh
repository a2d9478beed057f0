// Products for few tokens: every byte of the weight goes once from memory into the registers of
// tile products, with 16 outputs as rows and 8 tokens as columns (cuda_layout.h). The depth is
// split into parts, which the warps of a block share. A warp requests its weights and inputs steps
// ahead, by copies to shared memory: with loads into registers the compiler waits for all when the
// first is needed. Codes enter the product unchanged, exactly; scale and zero of a cell are applied
// to its sums in f32: out += scale (sum of q x - zero sum of x). fp8, mxfp4 and nvfp4 codes are
// numbers with only a scale; nvfp4's are multiplied by their group's scale before the product.
#pragma once

#include "intrinsics.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/linear_copies.cuh"

namespace bulkhead::cuda {

// Sums of one warp: of the completed cells of its part, and of the current cell.
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth = LinearWidth::kNarrow>
struct Sums {
  static constexpr int kRows = LinearRowTiles(kFormat, kWidth);
  static constexpr bool kTwoParts = kLinearMaxWarpParts<kTiles, kWidth> == 2;
  float done[kRows][kTiles][4] = {};
  float first[kTwoParts ? kRows : 1][kTiles][4] = {};  // of the previous part, if a warp has two
  float cell[kRows][kTiles][4] = {};
  float inputs[kTiles][4] = {};  // of x over the cell, the same for each row

  BH_DEVICE void Multiply(int r, int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (IsQuantized(kFormat)) {
      MmaBf16(cell[r][n], a, b);
    } else if constexpr (kFormat == WeightFormat::kF16) {
      MmaF16(done[r][n], a, b);
    } else {
      MmaBf16(done[r][n], a, b);
    }
  }

  // A product with ones: adding the numbers individually would double the instructions.
  BH_DEVICE void AddInputs(int n, const uint32_t (&b)[2]) {
    const uint32_t ones[4] = {kBf16Of1, kBf16Of1, kBf16Of1, kBf16Of1};
    MmaBf16(inputs[n], ones, b);
  }

  BH_DEVICE void FinishRows(int r, const uint32_t (&scaling)[2]) {
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float scale = __uint_as_float(ScaleBits(kFormat, scaling[half]));
      // 8-bit codes are centred.
      const float zero = kFormat == WeightFormat::kInt4
                             ? __uint_as_float(Int4ZeroAnd128Bits(scaling[half]))
                             : 0.0F;
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& sum = done[r][n][2 * half + i];
          float& of_cell = cell[r][n][2 * half + i];
          sum = fmaf(scale, fmaf(-zero, inputs[n][i], of_cell), sum);
          of_cell = 0.0F;
        }
      }
    }
  }

  // The cell, or its part of it, is complete.
  BH_DEVICE void FinishCell(const uint32_t (&scaling)[kRows][2]) {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) FinishRows(r, scaling[r]);
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 4; ++i) inputs[n][i] = 0.0F;
    }
  }

  BH_DEVICE void BeginSecondPart() {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) {
          first[r][n][i] = done[r][n][i];
          done[r][n][i] = 0.0F;
        }
      }
    }
  }
};

// 32 inputs of the row tiles times those of the columns.
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth, int kRows>
BH_DEVICE void MultiplyChunk(const WeightTile<kFormat> (&tiles)[kRows], const Words4 (&x)[kTiles],
                             int chunk, Sums<kFormat, kTiles, kWidth>& sums) {
  BH_UNROLL
  for (int half = 0; half < 2; ++half) {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      uint32_t a[4];
      tiles[r].Fragment(chunk, half, a);
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const uint32_t b[2] = {x[n].w[2 * half], x[n].w[2 * half + 1]};
        sums.Multiply(r, n, a, b);
        if constexpr (kFormat == WeightFormat::kInt4) {
          if (r == 0) sums.AddInputs(n, b);
        }
      }
    }
  }
  if constexpr (kFormat == WeightFormat::kMxfp4) {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums.FinishRows(r, {E8m0ScaleBits(tiles[r].scales, 2 * chunk),
                          E8m0ScaleBits(tiles[r].scales, 2 * chunk + 1)});
    }
  }
}

// The steps of a warp's one or two parts of the depth.
struct WarpSteps {
  int begin = 0;
  int count = 0;
  int of_second = 0;  // at the end, in the second part

  BH_DEVICE WarpSteps(int steps, int parts) {
    const int warps = int(blockDim.x) / kWarp;
    const int of_part = (steps + parts - 1) / parts;
    const int of_warp = of_part * (parts / warps);
    begin = WarpIndex() * of_warp;
    const int left = begin < steps ? steps - begin : 0;
    count = left < of_warp ? left : of_warp;
    of_second = count > of_part ? count - of_part : 0;
  }
};

// This warp's part of the depth of the row tiles from row_tile on. `wait` is called between the
// first copies of the weight and those of the inputs.
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth, typename Inputs, typename Wait>
BH_DEVICE void MultiplyParts(const PackedWeight& weight, int parts, int row_tile,
                             const Inputs& inputs, const Wait& wait,
                             Sums<kFormat, kTiles, kWidth>& sums) {
  constexpr int kRows = LinearRowTiles(kFormat, kWidth);
  constexpr int kPlaces = kLinearPlaces;
  constexpr int kPlaceBytes = StepCopies<kFormat, kTiles, kWidth>::kBytes;
  const WarpSteps steps(weight.depth / kDepthGranule, parts);
  unsigned char* const ring = SharedMemory() + WarpIndex() * (kPlaces * kPlaceBytes);
  StepCopies<kFormat, kTiles, kWidth> copies;
  copies.BeginWeight(weight, row_tile, steps.begin);
  BH_UNROLL
  for (int i = 0; i < kPlaces - 1; ++i) {
    if (i < steps.count) copies.CopyWeight(ring + i * kPlaceBytes);
  }
  Cells<kRows> cells;
  if constexpr (kHasCells<kFormat>) {
    if (steps.count > 0) cells.Begin(weight, row_tile, 2 * steps.begin);
  }
  wait();
  copies.BeginInputs(inputs, steps.begin);
  BH_UNROLL
  for (int i = 0; i < kPlaces - 1; ++i) {
    if (i < steps.count) copies.CopyInputs(ring + i * kPlaceBytes);
    CpAsyncCommit();
  }
  int at = 0;
  int free = (kPlaces - 1) * kPlaceBytes;
  BH_NO_UNROLL
  for (int left = steps.count; left > 0; --left) {
    CpAsyncWait<kPlaces - 2>();
    __syncwarp();  // lanes read what other lanes have copied
    WeightTile<kFormat> tiles[kRows];
    if constexpr (kWidth == LinearWidth::kNarrow) {
      BH_UNROLL
      for (int chunk = 0; chunk < 2; ++chunk) copies.ReadWeight(ring + at, chunk, tiles);
    }
    if (left >= kPlaces) {
      copies.CopyWeight(ring + free);
      copies.CopyInputs(ring + free);
    }
    CpAsyncCommit();
    if constexpr (kLinearMaxWarpParts<kTiles, kWidth> == 2) {
      if (left == steps.of_second) {
        if constexpr (kHasCells<kFormat>) sums.FinishCell(cells.scaling);
        sums.BeginSecondPart();
      }
    }
    BH_UNROLL
    for (int chunk = 0; chunk < 2; ++chunk) {
      if constexpr (kHasCells<kFormat>) {
        if (cells.until == chunk) {
          sums.FinishCell(cells.scaling);
          cells.Advance();
        }
      }
      if constexpr (kWidth == LinearWidth::kWide) {
        // There are too few registers to read both chunks' data at once.
        __syncwarp();
        copies.ReadWeight(ring + at, chunk, tiles);
      }
      Words4 x[kTiles];
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) x[n] = copies.Input(ring + at, chunk, n);
      MultiplyChunk(tiles, x, chunk, sums);
    }
    cells.until -= 2;
    free = at;
    at = at + kPlaceBytes < kPlaces * kPlaceBytes ? at + kPlaceBytes : 0;
  }
  if constexpr (kHasCells<kFormat>) sums.FinishCell(cells.scaling);
}

// The warps' sums, for AddShared: [warp][row tile][column tile][4][lane].
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth>
BH_DEVICE void Share(const Sums<kFormat, kTiles, kWidth>& sums) {
  constexpr int kRows = LinearRowTiles(kFormat, kWidth);
  CpAsyncWait<0>();
  __syncthreads();  // the memory of the copies is free
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  BH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 4; ++i) {
        float sum = sums.done[r][n][i];
        if constexpr (Sums<kFormat, kTiles, kWidth>::kTwoParts) sum = sums.first[r][n][i] + sum;
        shared[(((WarpIndex() * kRows + r) * kTiles + n) * 4 + i) * kWarp + LaneIndex()] = sum;
      }
    }
  }
  __syncthreads();
}

// Adds pairs of parts, each summed by one warp or here, in order: store(column, row relative to the
// first tile's first row, sum) for each.
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth, typename Store>
BH_DEVICE void AddShared(int parts, const Store& store) {
  constexpr int kOfWarp = LinearRowTiles(kFormat, kWidth) * kTiles * 4 * kWarp;
  const auto* const shared = reinterpret_cast<const float*>(SharedMemory());
  const int warps = int(blockDim.x) / kWarp;
  for (int at = int(threadIdx.x); at < kOfWarp; at += int(blockDim.x)) {
    float sum = 0.0F;
    if (parts > warps) {
      for (int w = 0; w < warps; ++w) sum += shared[w * kOfWarp + at];
    } else {
      for (int w = 0; w < warps; w += 2) {
        sum += shared[w * kOfWarp + at] + shared[(w + 1) * kOfWarp + at];
      }
    }
    const int lane = at % kWarp;
    const int i = at / kWarp % 4;
    const int tile = at / kWarp / 4;
    store(tile % kTiles * 8 + lane % 4 * 2 + i % 2,
          tile / kTiles * kTileRows + lane / 4 + i / 2 * 8, sum);
  }
}

template <WeightFormat kFormat, int kTiles, LinearWidth kWidth, typename Store>
BH_DEVICE void AddWarps(const Sums<kFormat, kTiles, kWidth>& sums, int parts, const Store& store) {
  Share(sums);
  AddShared<kFormat, kTiles, kWidth>(parts, store);
}

}  // namespace bulkhead::cuda
