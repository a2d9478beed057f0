// Products for few tokens: every byte of the weight goes once from memory into the registers of a
// product of tiles, in which 16 outputs are the rows and 8 tokens the columns (cuda_layout.h).
// The four warps of a block share the depth. Codes enter the product as they are, exactly; scale
// and zero of a cell are applied to its sums in f32: out += scale (sum of q x - zero sum of x).
// Codes of fp8 and fp4 are numbers, with a scale alone.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

inline constexpr int kLinearWarps = kLinearThreads / kWarp;
inline constexpr uint32_t kBf16Of128 = 0x43004300U;   // twice 128; the low 4 bits count ones
inline constexpr uint32_t kF32Of2To23 = 0x4B000000U;  // the low 8 bits count ones

// What a lane holds of 64 inputs of a tile of rows.
template <WeightFormat kFormat>
struct WeightTile {
  static constexpr int kLoads = WeightBits(kFormat) / 4;
  Words4 loads[kLoads];
  int cells[2];  // of its chunks, where weights have cells

  BH_DEVICE void Load(const PackedWeight& weight, int tile, int step) {
    if constexpr (IsQuantized(kFormat)) {
      const int64_t first =
          (static_cast<int64_t>(tile) * (weight.depth / kDepthGranule) + step) * kLoads;
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        loads[i] = LoadStream(weight.numbers + ((first + i) * kWarp + LaneIndex()) * 16);
      }
      cells[0] = weight.chunk_cell[2 * step];
      cells[1] = weight.chunk_cell[2 * step + 1];
    } else {
      const int64_t row = static_cast<int64_t>(tile) * kTileRows + LaneIndex() / 4;
      const int64_t at = static_cast<int64_t>(step) * kDepthGranule + LaneIndex() % 4 * 8;
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) {  // row, row + 8 of the first chunk, then of the second
        const int64_t number = (row + i % 2 * 8) * weight.depth + at + i / 2 * kChunkInputs;
        loads[i] = LoadStream(weight.numbers + number * 2);
      }
    }
  }

  // The fragment of the product `half` of chunk `chunk`.
  BH_DEVICE void Fragment(int chunk, int half, uint32_t (&a)[4]) const {
    if constexpr (kFormat == WeightFormat::kInt4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = (word >> (4 * i) & 0x000F000FU) | kBf16Of128;
    } else if constexpr (kFormat == WeightFormat::kFp4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = E2m1Pair(word >> (4 * i));
    } else if constexpr (kFormat == WeightFormat::kFp8) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = loads[chunk].w[2 * half + i];
        a[i] = E4m3PairAt(word, 0);
        a[2 + i] = E4m3PairAt(word, 2);
      }
    } else if constexpr (kFormat == WeightFormat::kInt8) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = loads[chunk].w[2 * half + i];
        a[i] = CodePair(word, 0x7650, 0x7651);
        a[2 + i] = CodePair(word, 0x7652, 0x7653);
      }
    } else {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        a[i] = loads[2 * chunk + i].w[2 * half];
        a[2 + i] = loads[2 * chunk + i].w[2 * half + 1];
      }
    }
  }

  // Two codes of 8 bits less 128, exact in bf16.
  BH_DEVICE static uint32_t CodePair(uint32_t word, uint32_t first, uint32_t second) {
    constexpr float kOffset = 8388608.0F + 128.0F;
    return Bf16Pair(__uint_as_float(__byte_perm(word, kF32Of2To23, first)) - kOffset,
                    __uint_as_float(__byte_perm(word, kF32Of2To23, second)) - kOffset);
  }
};

// Sums of one warp: of what is done, and of the cell in progress.
template <WeightFormat kFormat, int kTiles>
struct Sums {
  float done[kTiles][4] = {};
  float cell[kTiles][4] = {};
  float inputs[kTiles] = {};  // of x over the cell: token lane / 4, this lane's inputs
  uint32_t scaling[2] = {};   // of the cell, rows lane / 4 and 8 more

  BH_DEVICE void Multiply(int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (IsQuantized(kFormat)) {
      MmaBf16(cell[n], a, b);
    } else if constexpr (kFormat == WeightFormat::kF16) {
      MmaF16(done[n], a, b);
    } else {
      MmaBf16(done[n], a, b);
    }
  }

  BH_DEVICE void AddInputs(int n, const Words4& x) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      inputs[n] +=
          F32OfBf16(static_cast<uint16_t>(x.w[i])) + F32OfBf16(static_cast<uint16_t>(x.w[i] >> 16));
    }
  }

  // Loads issued now, used when the cell is complete.
  BH_DEVICE void BeginCell(const PackedWeight& weight, int row0, int which) {
    const int64_t padded_rows = (weight.rows + kTileRows - 1) / kTileRows * kTileRows;
    const uint32_t* const of_row = weight.scaling + which * padded_rows + row0 + LaneIndex() / 4;
    scaling[0] = of_row[0];
    scaling[1] = of_row[8];
  }

  // The cell is complete, as far as this warp goes.
  BH_DEVICE void FinishCell() {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      float first = 0.0F;
      float second = 0.0F;
      if constexpr (kFormat == WeightFormat::kInt4) {
        inputs[n] += __shfl_xor_sync(kFullMask, inputs[n], 1);
        inputs[n] += __shfl_xor_sync(kFullMask, inputs[n], 2);
        // This lane's columns are the tokens 2 (lane % 4) and the next one.
        first = __shfl_sync(kFullMask, inputs[n], LaneIndex() % 4 * 8);
        second = __shfl_sync(kFullMask, inputs[n], LaneIndex() % 4 * 8 + 4);
      }
      BH_UNROLL
      for (int half = 0; half < 2; ++half) {
        const uint32_t bits = scaling[half];
        const float scale =
            HasFloatCodes(kFormat) ? __uint_as_float(bits) : F32OfF16(static_cast<uint16_t>(bits));
        // Codes of 4 bits stand for 128 more, those of 8 bits were centred.
        const float zero = kFormat == WeightFormat::kInt4
                               ? 128.0F + F32OfF16(static_cast<uint16_t>(bits >> 16))
                               : 0.0F;
        float* const sums = done[n] + 2 * half;
        sums[0] = fmaf(scale, fmaf(-zero, first, cell[n][2 * half]), sums[0]);
        sums[1] = fmaf(scale, fmaf(-zero, second, cell[n][2 * half + 1]), sums[1]);
      }
      BH_UNROLL
      for (int i = 0; i < 4; ++i) cell[n][i] = 0.0F;
      inputs[n] = 0.0F;
    }
  }
};

// 64 inputs of a tile of rows times those of the columns. inputs.Row(n) is the row of inputs of
// this lane's column 8 n + lane / 4.
template <WeightFormat kFormat, int kTiles, typename Inputs>
BH_DEVICE void MultiplyStep(const PackedWeight& weight, int row_tile, const Inputs& inputs,
                            const WeightTile<kFormat>& tile, int step, int& cell,
                            Sums<kFormat, kTiles>& sums) {
  BH_UNROLL
  for (int chunk = 0; chunk < 2; ++chunk) {
    if constexpr (IsQuantized(kFormat)) {
      const int next = tile.cells[chunk];
      if (next != cell) {
        sums.FinishCell();
        sums.BeginCell(weight, row_tile * kTileRows, next);
      }
      cell = next;
    }
    Words4 x[kTiles];
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      const int at = step * kDepthGranule + chunk * kChunkInputs + LaneIndex() % 4 * 8;
      x[n] = LoadVector<Words4>(inputs.Row(n) + at);
      if constexpr (kFormat == WeightFormat::kInt4) sums.AddInputs(n, x[n]);
    }
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t a[4];
      tile.Fragment(chunk, half, a);
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const uint32_t b[2] = {x[n].w[2 * half], x[n].w[2 * half + 1]};
        sums.Multiply(n, a, b);
      }
    }
  }
}

// Steps of a warp whose loads are issued and not used yet: bytes in flight hide the memory's
// latency, and few rows make few warps. With more tokens registers run out, and warps are more.
template <WeightFormat kFormat, int kTiles>
inline constexpr int kAhead = (WeightBits(kFormat) == 4   ? 8
                               : WeightBits(kFormat) == 8 ? 6
                                                          : 4) /
                              kTiles;

// This warp's part of the depth of one tile of rows. `wait` comes between the first loads of the
// weight and those of the inputs.
template <WeightFormat kFormat, int kTiles, typename Inputs, typename Wait>
BH_DEVICE void MultiplyPart(const PackedWeight& weight, int row_tile, const Inputs& inputs,
                            const Wait& wait, Sums<kFormat, kTiles>& sums) {
  constexpr int kSteps = kAhead<kFormat, kTiles>;
  const int steps = weight.depth / kDepthGranule;
  const int steps_of_warp = (steps + kLinearWarps - 1) / kLinearWarps;
  const int begin = WarpIndex() * steps_of_warp;
  const int end = begin + steps_of_warp < steps ? begin + steps_of_warp : steps;
  WeightTile<kFormat> tiles[kSteps];
  BH_UNROLL
  for (int i = 0; i < kSteps; ++i) {
    if (begin + i < end) tiles[i].Load(weight, row_tile, begin + i);
  }
  int cell = 0;
  if constexpr (IsQuantized(kFormat)) {
    if (begin < end) cell = weight.chunk_cell[2 * begin];
    sums.BeginCell(weight, row_tile * kTileRows, cell);
  }
  wait();
  for (int first = begin; first < end; first += kSteps) {
    BH_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int step = first + i;
      if (step < end) {
        MultiplyStep<kFormat, kTiles>(weight, row_tile, inputs, tiles[i], step, cell, sums);
        if (step + kSteps < end) tiles[i].Load(weight, row_tile, step + kSteps);
      }
    }
  }
  if constexpr (IsQuantized(kFormat)) sums.FinishCell();
}

// The warps' sums, added in their order: store(column, row of the tile, sum) for each.
template <WeightFormat kFormat, int kTiles, typename Store>
BH_DEVICE void AddWarps(const Sums<kFormat, kTiles>& sums, const Store& store) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());  // [warp][tile][4][lane]
  BH_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      shared[((WarpIndex() * kTiles + n) * 4 + i) * kWarp + LaneIndex()] = sums.done[n][i];
    }
  }
  __syncthreads();
  for (int at = int(threadIdx.x); at < kTiles * 4 * kWarp; at += kLinearThreads) {
    const int lane = at % kWarp;
    const int i = at / kWarp % 4;
    float sum = 0.0F;
    BH_UNROLL
    for (int w = 0; w < kLinearWarps; ++w) sum += shared[w * kTiles * 4 * kWarp + at];
    store(at / kWarp / 4 * 8 + lane % 4 * 2 + i % 2, lane / 4 + i / 2 * 8, sum);
  }
}

}  // namespace bulkhead::cuda
