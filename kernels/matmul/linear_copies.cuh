// What a warp of linear.cuh reads: weight tiles and inputs, by copies to shared memory, and the
// scaling of cells, directly into registers.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

inline constexpr uint32_t kBf16Of128 = 0x43004300U;  // twice 128; the low 4 bits count ones
inline constexpr uint32_t kBf16OfMinus256 = 0xC380C380U;
inline constexpr uint32_t kBf16Of1 = 0x3F803F80U;

// Group scales come with the codes of each chunk, all others with a cell, which may be longer.
template <WeightFormat kFormat>
inline constexpr bool kHasCells = IsQuantized(kFormat) && kFormat != WeightFormat::kMxfp4;

BH_DEVICE int RowTiles(const PackedWeight& weight) {
  return (weight.rows + kTileRows - 1) / kTileRows;
}

// A lane's part of 64 inputs of a row tile.
template <WeightFormat kFormat>
struct WeightTile {
  static constexpr int kLoads = WeightBits(kFormat) / 4;
  static constexpr int kStepBytes = kLoads * kWarp * 16;
  Words4 loads[kLoads];
  uint32_t scales = 0;  // of groups

  // The fragment for product `half` of chunk `chunk`.
  BH_DEVICE void Fragment(int chunk, int half, uint32_t (&a)[4]) const {
    if constexpr (kFormat == WeightFormat::kInt4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = AndXor(word >> (4 * i), 0x000F000FU, kBf16Of128);
    } else if constexpr (kFormat == WeightFormat::kMxfp4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = E2m1Pair(word >> (4 * i));
    } else if constexpr (kFormat == WeightFormat::kNvfp4) {
      const uint32_t word = loads[0].w[2 * chunk + half];
      uint32_t of_row[2];
      Nvfp4Scales(scales, 2 * chunk, of_row);
      BH_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = ScaledE2m1Pair(word >> (4 * i), of_row[i % 2]);
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

  // Two 8-bit codes, 16 bits apart, less 128, exact in bf16: 128 and the low bits, less 128 if the
  // code's high bit is set, else 256.
  BH_DEVICE static uint32_t CodePair(uint32_t codes) {
    return FmaBf16Pairs(AndXor(codes, 0x007F007FU, kBf16Of128), kBf16Of1,
                        AndXor(codes, 0x00800080U, kBf16OfMinus256));
  }
};

// A warp's position in the cells, which are stored in order of depth. A cell's length and scaling
// are loaded one cell ahead, and nothing waits for them until they are needed.
template <int kRows>
struct Cells {
  int until = 0;                    // chunks from the first of the step to the cell's end
  const int32_t* next = nullptr;    // position of the next cell in chunk_cell
  int32_t next_cell = 0;            // its value
  const uint32_t* at = nullptr;     // this lane's position in the scaling
  int last_row = 0;                 // of the matrix's last tile, relative to the first row
  uint32_t scaling[kRows][2] = {};  // of the cell, rows lane / 4 and 8 more of each tile
  int padded_rows = 0;

  BH_DEVICE void Begin(const PackedWeight& weight, int row_tile, int chunk) {
    const int tiles = RowTiles(weight);
    padded_rows = tiles * kTileRows;
    last_row = (tiles - 1 - row_tile) * kTileRows;
    next = weight.chunk_cell + chunk;
    at = weight.scaling + static_cast<int64_t>(CellOf(*next)) * padded_rows + row_tile * kTileRows +
         LaneIndex() / 4;
    next_cell = *next;
    Load();
  }
  BH_DEVICE void Advance() {
    at += padded_rows;
    Load();
  }
  // After the last cell `next` is at input_at, whose first word is not used.
  BH_DEVICE void Load() {
    until += ChunksLeftOf(next_cell);
    next += ChunksLeftOf(next_cell);
    next_cell = *next;
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int row = r * kTileRows < last_row ? r * kTileRows : last_row;
      scaling[r][0] = at[row];
      scaling[r][1] = at[row + 8];
    }
  }
};

// The copies of a warp: places in shared memory of one step each: [row tile][load][lane][16] of the
// weight, [chunk][column tile][lane][16] of the inputs, the group scales.
template <WeightFormat kFormat, int kTiles, LinearWidth kWidth>
struct StepCopies {
  static constexpr int kRows = LinearRowTiles(kFormat, kWidth);
  static constexpr int kLoads = WeightTile<kFormat>::kLoads;
  static constexpr int kLoadBytes = kWarp * 16;
  static constexpr int kInputsAt = kRows * kLoads * kLoadBytes;
  static constexpr int kScalesAt = kInputsAt + 2 * kTiles * kLoadBytes;
  static constexpr int kScaleBytes = IsFp4(kFormat) ? Fp4ScaleWords(kFormat) * 4 : 0;
  static constexpr int kBytes = LinearStepBytes(kFormat, kTiles, kWidth);
  static_assert(kBytes >= kScalesAt + kRows * kScaleBytes);

  const unsigned char* codes[kRows];   // this lane's codes of the next step
  const unsigned char* scales[kRows];  // of groups
  const uint16_t* inputs[kTiles];      // of this lane's column; null if there is none
  int input_at[kTiles];  // offset in a place that this lane reads: absent columns repeat the last
                         // one, and their sums are not stored
  int64_t depth = 0;

  BH_DEVICE void BeginWeight(const PackedWeight& weight, int row_tile, int step) {
    const int last_tile = RowTiles(weight) - 1;
    depth = weight.depth;
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int64_t tile = row_tile + r < last_tile ? row_tile + r : last_tile;
      const int64_t at = tile * (weight.depth / kDepthGranule) + step;
      if constexpr (IsQuantized(kFormat)) {
        codes[r] = weight.numbers + at * WeightTile<kFormat>::kStepBytes + LaneIndex() * 16;
      } else {
        const int64_t row = tile * kTileRows + LaneIndex() / 4;
        codes[r] = weight.numbers + (row * depth + step * kDepthGranule + LaneIndex() % 4 * 8) * 2;
      }
      if constexpr (IsFp4(kFormat)) {
        scales[r] = reinterpret_cast<const unsigned char*>(GroupScales(kFormat, weight)) +
                    at * kScaleBytes + LaneIndex() * 16;
      }
    }
  }

  template <typename Inputs>
  BH_DEVICE void BeginInputs(const Inputs& rows, int step) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      const int column = 8 * n + LaneIndex() / 4;
      const bool there = column < rows.Count();
      const int from = there ? column : rows.Count() - 1;
      inputs[n] = there ? rows.Row(column) + step * kDepthGranule + LaneIndex() % 4 * 8 : nullptr;
      input_at[n] = kInputsAt + (from * 4 + LaneIndex() % 4) * 16;
    }
  }

  BH_DEVICE void CopyWeight(unsigned char* place) {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BH_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const unsigned char* from = codes[r];
        if constexpr (IsQuantized(kFormat)) {
          from += i * kLoadBytes;
        } else {  // row, row + 8 of the first chunk, then of the second
          from += (i % 2 * 8 * depth + i / 2 * kChunkInputs) * 2;
        }
        CpAsync16(place + (r * kLoads + i) * kLoadBytes + LaneIndex() * 16, from, true);
      }
      codes[r] += IsQuantized(kFormat) ? WeightTile<kFormat>::kStepBytes : kDepthGranule * 2;
      if constexpr (IsFp4(kFormat)) {
        if (LaneIndex() < kScaleBytes / 16) {
          CpAsync16(place + kScalesAt + r * kScaleBytes + LaneIndex() * 16, scales[r], true);
        }
        scales[r] += kScaleBytes;
      }
    }
  }

  BH_DEVICE void CopyInputs(unsigned char* place) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      if (inputs[n] == nullptr) continue;
      BH_UNROLL
      for (int chunk = 0; chunk < 2; ++chunk) {
        CpAsync16(place + kInputsAt + (chunk * kTiles + n) * kLoadBytes + LaneIndex() * 16,
                  inputs[n] + chunk * kChunkInputs, true);
      }
      inputs[n] += kDepthGranule;
    }
  }

  // Reads what chunk `chunk` needs and the previous one did not.
  BH_DEVICE void ReadWeight(const unsigned char* place, int chunk,
                            WeightTile<kFormat> (&tiles)[kRows]) const {
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BH_UNROLL
      for (int i = (chunk * kLoads + 1) / 2; i < ((chunk + 1) * kLoads + 1) / 2; ++i) {
        tiles[r].loads[i] =
            LoadVector<Words4>(place + (r * kLoads + i) * kLoadBytes + LaneIndex() * 16);
      }
      if (IsFp4(kFormat) && chunk == 0) {
        tiles[r].scales = *reinterpret_cast<const uint32_t*>(
            place + kScalesAt + r * kScaleBytes + Fp4ScaleWordOfLane(kFormat, LaneIndex()) * 4);
      }
    }
  }

  BH_DEVICE Words4 Input(const unsigned char* place, int chunk, int n) const {
    return LoadVector<Words4>(place + chunk * kTiles * kLoadBytes + input_at[n]);
  }
};

}  // namespace bulkhead::cuda
