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

// Scales of fp4 come with the codes of each chunk, all others with a cell, which may be longer.
template <WeightFormat kFormat>
inline constexpr bool kHasCells = IsQuantized(kFormat) && kFormat != WeightFormat::kFp4;

// What a lane holds of 64 inputs of a tile of rows.
template <WeightFormat kFormat>
struct WeightTile {
  static constexpr int kLoads = WeightBits(kFormat) / 4;
  static constexpr int kStepBytes = kLoads * kWarp * 16;
  Words4 loads[kLoads];
  uint32_t scales = 0;  // of fp4

  // `codes`: this lane's of the step, where weights have cells.
  BH_DEVICE void Load(const PackedWeight& weight, const unsigned char* codes, int tile, int step) {
    if constexpr (IsQuantized(kFormat)) {
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) loads[i] = LoadStream(codes + i * kWarp * 16);
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

// A warp's way through the cells, which lie in the depth in their order. A cell's length and its
// scaling are asked for one cell before they are wanted, and nothing waits for them until then.
struct Cells {
  int until = 0;                  // chunks from the first of the loop's turn to the cell's end
  const int32_t* next = nullptr;  // the next cell's place in chunk_cell
  int32_t next_cell = 0;          // what is there
  const uint32_t* at = nullptr;   // this lane's of the scaling
  uint32_t scaling[2] = {};       // of the cell, rows lane / 4 and 8 more
  int64_t padded_rows = 0;

  BH_DEVICE void Begin(const PackedWeight& weight, int row0, int chunk) {
    padded_rows = (weight.rows + kTileRows - 1) / kTileRows * kTileRows;
    next = weight.chunk_cell + chunk;
    at = weight.scaling + CellOf(*next) * padded_rows + row0 + LaneIndex() / 4;
    next_cell = *next;
    Load();
  }
  BH_DEVICE void Advance() {
    at += padded_rows;
    Load();
  }
  // Behind the last cell `next` is at input_at, whose first word is not used.
  BH_DEVICE void Load() {
    until += ChunksLeftOf(next_cell);
    next += ChunksLeftOf(next_cell);
    next_cell = *next;
    scaling[0] = at[0];
    scaling[1] = at[8];
  }
};

// Sums of one warp: of what is done, and of the cell in progress.
template <WeightFormat kFormat, int kTiles>
struct Sums {
  float done[kTiles][4] = {};
  float cell[kTiles][4] = {};
  float inputs[kTiles][4] = {};  // of x over the cell, the same for each row

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

  // The cell is complete, as far as this warp goes.
  BH_DEVICE void FinishCell(const uint32_t (&scaling)[2]) {
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

// 64 inputs of a tile of rows, step `in_turn` of the loop's turn, times those of the columns.
// inputs.Row(n) is the row of inputs of this lane's column 8 n + lane / 4.
template <WeightFormat kFormat, int kTiles, typename Inputs>
BH_DEVICE void MultiplyStep(const Inputs& inputs, const WeightTile<kFormat>& tile, int step,
                            int in_turn, Cells& cells, Sums<kFormat, kTiles>& sums) {
  BH_UNROLL
  for (int chunk = 0; chunk < 2; ++chunk) {
    if constexpr (kHasCells<kFormat>) {
      if (cells.until == 2 * in_turn + chunk) {
        sums.FinishCell(cells.scaling);
        cells.Advance();
      }
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
    if constexpr (kFormat == WeightFormat::kFp4) {
      sums.FinishCell(
          {E8m0ScaleBits(tile.scales, 2 * chunk), E8m0ScaleBits(tile.scales, 2 * chunk + 1)});
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
  const int64_t first_step = static_cast<int64_t>(row_tile) * steps + begin;
  const unsigned char* codes =
      weight.numbers + first_step * WeightTile<kFormat>::kStepBytes + LaneIndex() * 16;
  const uint32_t* scales = nullptr;
  if constexpr (kFormat == WeightFormat::kFp4) {
    scales = weight.scaling + first_step * kFp4ScaleWords + LaneIndex() / 4;
  }
  const auto load = [&](int i, int step) {
    tiles[i].Load(weight, codes + i * WeightTile<kFormat>::kStepBytes, row_tile, step);
    if constexpr (kFormat == WeightFormat::kFp4) tiles[i].scales = scales[i * kFp4ScaleWords];
  };
  BH_UNROLL
  for (int i = 0; i < kSteps; ++i) {
    if (begin + i < end) load(i, begin + i);
  }
  Cells cells;
  if constexpr (kHasCells<kFormat>) {
    if (begin < end) cells.Begin(weight, row_tile * kTileRows, 2 * begin);
  }
  wait();
  for (int first = begin; first < end; first += kSteps) {
    const int left = end - first;
    codes += kSteps * WeightTile<kFormat>::kStepBytes;
    if constexpr (kFormat == WeightFormat::kFp4) scales += kSteps * kFp4ScaleWords;
    BH_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      if (i < left) {
        MultiplyStep<kFormat, kTiles>(inputs, tiles[i], first + i, i, cells, sums);
        if (i + kSteps < left) load(i, first + i + kSteps);
      }
    }
    cells.until -= 2 * kSteps;
  }
  if constexpr (kHasCells<kFormat>) sums.FinishCell(cells.scaling);
}

// The warps' sums, for AddShared: [warp][tile][4][lane].
template <WeightFormat kFormat, int kTiles>
BH_DEVICE void Share(const Sums<kFormat, kTiles>& sums) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  BH_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      shared[((WarpIndex() * kTiles + n) * 4 + i) * kWarp + LaneIndex()] = sums.done[n][i];
    }
  }
  __syncthreads();
}

// Added in the warps' order: store(column, row of the tile, sum) for each.
template <int kTiles, typename Store>
BH_DEVICE void AddShared(const Store& store) {
  const auto* const shared = reinterpret_cast<const float*>(SharedMemory());
  for (int at = int(threadIdx.x); at < kTiles * 4 * kWarp; at += kLinearThreads) {
    const int lane = at % kWarp;
    const int i = at / kWarp % 4;
    float sum = 0.0F;
    BH_UNROLL
    for (int w = 0; w < kLinearWarps; ++w) sum += shared[w * kTiles * 4 * kWarp + at];
    store(at / kWarp / 4 * 8 + lane % 4 * 2 + i % 2, lane / 4 + i / 2 * 8, sum);
  }
}

template <WeightFormat kFormat, int kTiles, typename Store>
BH_DEVICE void AddWarps(const Sums<kFormat, kTiles>& sums, const Store& store) {
  Share(sums);
  AddShared<kTiles>(store);
}

}  // namespace bulkhead::cuda
