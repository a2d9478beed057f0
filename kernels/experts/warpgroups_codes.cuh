// Conversion of weights in codes for the stages of warpgroups.cuh: to bf16, with the same bits as
// codes.cuh, (code - zero) scale rounded once, by fewer instructions. nvfp4 is without the row's
// factor, which is applied to the sums.
#pragma once

#include "kernels/cuda/float_codes.cuh"
#include "kernels/experts/warpgroups_pieces.cuh"

namespace bulkhead::cuda {

// Converts a row's codes in a cell: rows g and g + 8 of a tile are `row` 0 and 1. An integer code
// becomes an f32 by the bits of 2^n around it, and (2^n + code) scale - (2^n + zero) scale, fused,
// is (code - zero) scale: (2^n + zero) scale has at most 24 bits. scales: of the lane's group, for
// mxfp4 and nvfp4, twice in bf16.
template <WeightFormat kFormat>
class RowScale {
 public:
  BH_DEVICE RowScale(uint32_t scaling, uint32_t scales, int row) : scales_(scales) {
    scale_ = __uint_as_float(ScaleBits(kFormat, scaling));
    if constexpr (!HasFloatCodes(kFormat)) offset_ = -AroundZero(scaling, row) * scale_;
  }

  // Four inputs, as pairs in bf16.
  BH_DEVICE void Four(uint32_t word, int row, uint32_t (&pairs)[2]) const {
    if constexpr (kFormat == WeightFormat::kInt4) {
      // Row g from bits 16 to 19, row g + 8 from bits 12 to 15.
      const uint32_t turned = word >> 16 | word << 16;
      const uint32_t up = word << 8;
      const uint32_t down = word >> 8;
      pairs[0] = row == 0 ? Pair(Whole4(turned, row), Whole4(word, row))
                          : Pair(Whole4(up, row), Whole4(down, row));
      pairs[1] = row == 0 ? Pair(Whole4(up, row), Whole4(down, row))
                          : Pair(Whole4(word, row), Whole4(turned, row));
    } else {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) pairs[i] = PairAt(word, row, i);
    }
  }

 private:
  BH_DEVICE uint32_t PairAt(uint32_t word, int row, int at) const {
    if constexpr (kFormat == WeightFormat::kInt8) {
      return Pair(Whole8(word, 2 * at), Whole8(word, 2 * at + 1));
    } else if constexpr (kFormat == WeightFormat::kFp8) {
      const uint32_t pair = E4m3WeightPairAt(word, 2 * at);
      return Bf16Pair(__uint_as_float(pair << 16) * scale_,
                      __uint_as_float(pair & 0xFFFF0000U) * scale_);
    } else if constexpr (kFormat == WeightFormat::kNvfp4) {
      return ScaledE2m1Pair(word >> (8 * at + 4 * row), scales_);
    } else {
      return FmaBf16Pairs(E2m1Pair(word >> (8 * at + 4 * row)), scales_, kBf16OfMinusZero);
    }
  }
  // 2^n + zero, 2^n: 2^15 for 8 bits, whose zero is 128, and for 4 bits 2^7 and 2^11 by row.
  BH_DEVICE static float AroundZero(uint32_t scaling, int row) {
    if constexpr (kFormat == WeightFormat::kInt8) return 32768.0F + 128.0F;
    return __uint_as_float(row == 0 ? AndXor(scaling << 16, kInt4ZeroBits << 16, 0x43000000U)
                                    : AndXor(scaling << 12, kInt4ZeroBits << 12, 0x45000000U));
  }
  BH_DEVICE static float Whole4(uint32_t word, int row) {
    return __uint_as_float(row == 0 ? AndXor(word, 0x000F0000U, 0x43000000U)
                                    : AndXor(word, 0x0000F000U, 0x45000000U));
  }
  // The code in bits 8 to 15.
  BH_DEVICE static float Whole8(uint32_t word, int input) {
    return __uint_as_float(
        __byte_perm(word, 0x47000000U, 0x7604U + 0x10U * static_cast<uint32_t>(input)));
  }
  BH_DEVICE uint32_t Pair(float low, float high) const {
    return Bf16Pair(fmaf(low, scale_, offset_), fmaf(high, scale_, offset_));
  }

  float scale_;
  float offset_;
  uint32_t scales_;
};

// Lane 4 g + j stores 16 bytes of each row g and g + 8 of a chunk at a time: lanes with an even g
// begin with the first chunk, the others with the second one, so that they write to different
// banks.
BH_DEVICE int ChunkOfLane(int turn) { return turn ^ LaneIndex() / 4 % 2; }

// The weights of a piece: a thread converts one lane's codes of one tile of 16 rows in each 128. A
// step is loaded before the previous one's codes are converted, and the cells of its scales a step
// earlier. Beyond the last tile, whose outputs are not stored, and beyond the last step, these are
// loaded again.
template <WeightFormat kFormat, int kThreads>
class CodeSteps {
 public:
  BH_DEVICE CodeSteps(const PackedWeight& weight, const Piece& piece)
      : scaling_(kHasFp4 ? GroupScales(kFormat, weight) : weight.scaling),
        chunk_cell_(weight.chunk_cell),
        steps_left_(weight.depth / kPieceStepInputs),
        is_wide_(piece.is_wide()) {
    const int last_tile = (weight.rows + kTileRows - 1) / kTileRows - 1;
    const int tile = Least(piece.output0 / kTileRows + Warp(), last_tile);
    const int further_tiles = Least(kWarps, last_tile - tile);
    const int64_t steps = steps_left_;
    numbers_ = weight.numbers + (tile * steps * kStepBytes + LaneIndex() * 16);
    further_bytes_ = static_cast<int>(further_tiles * steps * kStepBytes);
    if constexpr (k8Bits) numbers_ += ChunkOfLane(0) * kTurnBytes;
    if constexpr (kHasFp4) {
      scaling_ += tile * steps * kScaleWords + Fp4ScaleWordOfLane(kFormat, LaneIndex());
      further_scaling_ = static_cast<int>(further_tiles * steps * kScaleWords);
    } else {
      scaling_ += tile * kTileRows + LaneIndex() / 4;
      further_scaling_ = further_tiles * kTileRows;
      padded_rows_ = (last_tile + 1) * kTileRows;
      FindCells();
    }
  }

  // Loads the next step.
  template <int kSlot>
  BH_DEVICE void Load() {
    LoadTile(0, 0, slots_[kSlot][0]);
    if (is_wide_) LoadTile(further_bytes_, further_scaling_, slots_[kSlot][1]);
    if (--steps_left_ <= 0) return;
    numbers_ += kStepBytes;
    if constexpr (kHasFp4) {
      scaling_ += kScaleWords;
    } else {
      chunk_cell_ += kPieceStepInputs / kChunkInputs;
      FindCells();
    }
  }
  // Whether the step being stored is the last.
  BH_DEVICE bool is_last() const { return steps_left_ < 0; }
  template <int kSlot>
  BH_DEVICE void Store(unsigned char* stage) const {
    unsigned char* const to =
        stage + kPieceInputBytes + (Warp() * kTileRows + LaneIndex() / 4) * kPieceRowBytes;
    StoreTile(slots_[kSlot][0], to);
    if (is_wide_) StoreTile(slots_[kSlot][1], to + kPieceOutputs / 2 * kPieceRowBytes);
  }

 private:
  static constexpr bool k8Bits = WeightBits(kFormat) == 8;
  static constexpr bool kHasFp4 = IsFp4(kFormat);
  static constexpr int kScaleWords = Fp4ScaleWords(kFormat);
  static constexpr int kWarps = kThreads / kWarp;
  static_assert(kWarps * kTileRows == kPieceOutputs / 2);
  static constexpr int kTurnBytes = kWarp * 16;  // for 8 bits
  static constexpr int kStepBytes = k8Bits ? 2 * kTurnBytes : kWarp * 16;

  struct Tile {
    Words4 words[k8Bits ? 2 : 1];  // by turn; with 4 bits both chunks' together
    uint32_t scaling[2][2];        // by turn, then row; fp4: scales of groups, only the first word
  };

  BH_DEVICE static int Least(int a, int b) { return a < b ? a : b; }
  BH_DEVICE static int Warp() { return WarpIndex() - kPieceComputeThreads / kWarp; }

  // The cells of the scales that are loaded next.
  BH_DEVICE void FindCells() {
    BH_UNROLL
    for (int turn = 0; turn < 2; ++turn) cells_[turn] = CellOf(chunk_cell_[ChunkOfLane(turn)]);
  }

  BH_DEVICE void LoadTile(int bytes, int of_scaling, Tile& into) const {
    const unsigned char* const numbers = numbers_ + bytes;
    into.words[0] = LoadStream(numbers);
    if constexpr (k8Bits) {
      into.words[1] = LoadStream(numbers + (1 - 2 * ChunkOfLane(0)) * kTurnBytes);
    }
    if constexpr (kHasFp4) {
      into.scaling[0][0] = scaling_[of_scaling];
    } else {
      BH_UNROLL
      for (int turn = 0; turn < 2; ++turn) {
        const uint32_t* const scaling =
            scaling_ + of_scaling + static_cast<int64_t>(cells_[turn]) * padded_rows_;
        into.scaling[turn][0] = scaling[0];
        into.scaling[turn][1] = scaling[8];
      }
    }
  }

  BH_DEVICE static void StoreTile(const Tile& tile, unsigned char* to) {
    BH_UNROLL
    for (int turn = 0; turn < 2; ++turn) {
      const int chunk = ChunkOfLane(turn) * 4 + LaneIndex() % 4;
      const int in_row = (chunk ^ LaneIndex() / 4) * 16;
      BH_UNROLL
      for (int row = 0; row < 2; ++row) {
        const uint32_t scaling = kHasFp4 ? 0 : tile.scaling[turn][row];
        const RowScale<kFormat> scale(scaling, ScalesOf(tile, turn, row), row);
        Words4 numbers;
        BH_UNROLL
        for (int product = 0; product < 2; ++product) {
          uint32_t pairs[2];
          scale.Four(WordOf(tile, turn, product, row), row, pairs);
          numbers.w[2 * product] = pairs[0];
          numbers.w[2 * product + 1] = pairs[1];
        }
        StoreVector(to + 8 * row * kPieceRowBytes + in_row, numbers);
      }
    }
  }
  // The scale of the lane's group of a row. bf16 has all powers of two, so products with mxfp4's
  // are rounded only where f32 would round them as well.
  BH_DEVICE static uint32_t ScalesOf(const Tile& tile, int turn, int row) {
    if constexpr (kFormat == WeightFormat::kMxfp4) {
      const uint32_t bits = E8m0ScaleBits(tile.scaling[0][0], ChunkOfLane(turn) * 2 + row);
      return __byte_perm(bits, 0, 0x3232U);
    } else if constexpr (kFormat == WeightFormat::kNvfp4) {
      uint32_t of_row[2];
      Nvfp4Scales(tile.scaling[0][0] >> ChunkOfLane(turn) * 16, 0, of_row);
      return of_row[row];
    } else {
      return 0;
    }
  }
  BH_DEVICE static uint32_t WordOf(const Tile& tile, int turn, int product, int row) {
    if constexpr (k8Bits) {
      return tile.words[turn].w[2 * product + row];
    } else {
      return ChunkOfLane(turn) == 0 ? tile.words[0].w[product] : tile.words[0].w[2 + product];
    }
  }

  const unsigned char* numbers_;
  const uint32_t* scaling_;
  const int32_t* chunk_cell_;
  int steps_left_;  // from the next one to be loaded
  const bool is_wide_;
  int further_bytes_;  // to the tile of the second 128 rows
  int further_scaling_;
  int padded_rows_;
  int cells_[2];
  Tile slots_[2][2];
};

}  // namespace bulkhead::cuda
