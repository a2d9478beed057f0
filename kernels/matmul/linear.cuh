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
inline constexpr uint32_t kBf16Of128 = 0x43004300U;  // twice 128; the low 4 bits count ones
inline constexpr uint32_t kBf16OfMinus256 = 0xC380C380U;
inline constexpr uint32_t kBf16Of1 = 0x3F803F80U;

struct alignas(8) CellPair {
  int32_t of[2];
};

// What a lane holds of 64 inputs of a tile of rows.
template <WeightFormat kFormat>
struct WeightTile {
  static constexpr int kLoads = WeightBits(kFormat) / 4;
  Words4 loads[kLoads];
  CellPair cells;  // of its chunks, where weights have cells

  // `codes`: this lane's of the tile, of step 0, where weights have cells.
  BH_DEVICE void Load(const PackedWeight& weight, const unsigned char* codes, int tile, int step) {
    if constexpr (IsQuantized(kFormat)) {
      const unsigned char* const from = codes + step * (kLoads * kWarp * 16);
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) loads[i] = LoadStream(from + i * kWarp * 16);
      cells = LoadVector<CellPair>(weight.chunk_cell + 2 * step);
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
      for (int i = 0; i < 4; ++i) a[i] = AndXor(word >> (4 * i), 0x000F000FU, kBf16Of128);
    } else if constexpr (kFormat == WeightFormat::kFp4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = E2m1Pair(word >> (4 * i));
    } else if constexpr (kFormat == WeightFormat::kFp8) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = loads[chunk].w[2 * half + i];
        a[i] = E4m3WeightPairAt(word, 0);
        a[2 + i] = E4m3WeightPairAt(word, 2);
      }
    } else if constexpr (kFormat == WeightFormat::kInt8) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = loads[chunk].w[2 * half + i];
        a[i] = CodePair(__byte_perm(word, 0, 0x4140));
        a[2 + i] = CodePair(__byte_perm(word, 0, 0x4342));
      }
    } else {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        a[i] = loads[2 * chunk + i].w[2 * half];
        a[2 + i] = loads[2 * chunk + i].w[2 * half + 1];
      }
    }
  }

  // Two codes of 8 bits, 16 bits apart, less 128, exact in bf16: 128 and the low bits, less 128
  // where the code's first bit is set, else 256.
  BH_DEVICE static uint32_t CodePair(uint32_t codes) {
    return FmaBf16Pairs(AndXor(codes, 0x007F007FU, kBf16Of128), kBf16Of1,
                        AndXor(codes, 0x00800080U, kBf16OfMinus256));
  }
};

// Sums of one warp: of what is done, and of the cell in progress.
template <WeightFormat kFormat, int kTiles>
struct Sums {
  float done[kTiles][4] = {};
  float cell[kTiles][4] = {};
  float inputs[kTiles][4] = {};  // of x over the cell, the same for each row
  uint32_t scaling[2] = {};      // of the cell, rows lane / 4 and 8 more

  BH_DEVICE void Multiply(int n, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (IsQuantized(kFormat)) {
      MmaBf16(cell[n], a, b);
    } else if constexpr (kFormat == WeightFormat::kF16) {
      MmaF16(done[n], a, b);
    } else {
      MmaBf16(done[n], a, b);
    }
  }

  // A product with ones: adding the numbers one by one would take as many instructions as all else.
  BH_DEVICE void AddInputs(int n, const uint32_t (&b)[2]) {
    const uint32_t ones[4] = {kBf16Of1, kBf16Of1, kBf16Of1, kBf16Of1};
    MmaBf16(inputs[n], ones, b);
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
        sums[0] = fmaf(scale, fmaf(-zero, inputs[n][0], cell[n][2 * half]), sums[0]);
        sums[1] = fmaf(scale, fmaf(-zero, inputs[n][1], cell[n][2 * half + 1]), sums[1]);
      }
      BH_UNROLL
      for (int i = 0; i < 4; ++i) cell[n][i] = inputs[n][i] = 0.0F;
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
      const int next = tile.cells.of[chunk];
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
    }
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t a[4];
      tile.Fragment(chunk, half, a);
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const uint32_t b[2] = {x[n].w[2 * half], x[n].w[2 * half + 1]};
        sums.Multiply(n, a, b);
        if constexpr (kFormat == WeightFormat::kInt4) sums.AddInputs(n, b);
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
  const int64_t first_load = static_cast<int64_t>(row_tile) * steps * WeightTile<kFormat>::kLoads;
  const unsigned char* const codes = weight.numbers + (first_load * kWarp + LaneIndex()) * 16;
  BH_UNROLL
  for (int i = 0; i < kSteps; ++i) {
    if (begin + i < end) tiles[i].Load(weight, codes, row_tile, begin + i);
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
        if (step + kSteps < end) tiles[i].Load(weight, codes, row_tile, step + kSteps);
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
