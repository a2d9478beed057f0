// Products for many tokens: a block computes 128 tokens by 128 outputs, 32 inputs at a time, which
// asynchronous copies bring to shared memory ahead. Each of its eight warps has 64 tokens by 32
// outputs in registers. Weights and inputs have the layouts of cuda_layout.h and GatherInputs.
// Codes become (code - zero) scale, rounded to bf16, on the way to shared memory. The depth of a
// product of codes may be split into parts, each summed from zero and added in order, whichever
// blocks compute them (gemm_parts.h).
#pragma once

#include "intrinsics.h"
#include "kernels/matmul/codes.cuh"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {

inline constexpr int kStepInputs = kGemmStepInputs;
inline constexpr int kStages = 4;
inline constexpr int kRowBytes = kStepInputs * 2 + 16;  // rows of a tile are in different banks
inline constexpr int kOperandBytes = kGemmTile * kRowBytes;
inline constexpr int kStageBytes = 2 * kOperandBytes;  // inputs, weights
inline constexpr int kWarpTokens = 64;
inline constexpr int kWarpOutputs = 32;
inline constexpr int kTokenTiles = kWarpTokens / 16;
inline constexpr int kOutputTiles = kWarpOutputs / 8;
static_assert(kStages * kStageBytes == kGemmSharedBytes);

// A thread's pieces of 128 rows in row-major memory, 32 numbers of each per step: row_at(i) is the
// location of row i, or -1 for a row of zeros.
struct RowCopies {
  static constexpr int kChunks = kStepInputs / 8;
  static constexpr int kPieces = kGemmTile * kChunks / kGemmThreads;
  static constexpr int kRowsApart = kGemmThreads / kChunks;
  static_assert(kPieces * kRowsApart == kGemmTile);
  const unsigned char* from[kPieces] = {};
  bool valid[kPieces] = {};

  template <typename RowAt>
  BH_DEVICE RowCopies(const void* rows, const RowAt& row_at, int depth) {
    BH_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int row = row_at(i * kRowsApart + int(threadIdx.x) / kChunks);
      valid[i] = row >= 0;
      const int64_t number =
          (valid[i] ? static_cast<int64_t>(row) * depth : 0) + int(threadIdx.x) % kChunks * 8;
      from[i] = static_cast<const unsigned char*>(rows) + number * 2;
    }
  }
  BH_DEVICE void Copy(unsigned step, unsigned char* operand) const {
    unsigned char* const to =
        operand + int(threadIdx.x) / kChunks * kRowBytes + int(threadIdx.x) % kChunks * 16;
    BH_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      CpAsync16(to + i * kRowsApart * kRowBytes,
                from[i] + static_cast<int64_t>(step) * (kStepInputs * 2), valid[i]);
    }
  }
};

// A thread has one lane of one of the block's tiles of 16 rows, read one step before it is stored.
template <WeightFormat kFormat>
BH_DEVICE void StoreCodes(const Codes<kFormat>& codes, unsigned char* operand) {
  unsigned char* const to =
      operand + (WarpIndex() * kTileRows + LaneIndex() / 4) * kRowBytes + LaneIndex() % 4 * 16;
  BH_UNROLL
  for (int row = 0; row < 2; ++row) {
    StoreVector(to + 8 * row * kRowBytes, codes.Numbers(row));
  }
}
static_assert(kGemmThreads / kWarp * kTileRows == kGemmTile);
static_assert(kStepInputs == kChunkInputs);

template <bool kF16>
struct WarpSums {
  float sums[kTokenTiles][kOutputTiles][4] = {};

  // Adds 16 inputs, `at` bytes into the rows of the operands.
  BH_DEVICE void Add(const unsigned char* inputs, const unsigned char* weights, int at) {
    const int lane = LaneIndex();
    uint32_t b[kOutputTiles][2];
    BH_UNROLL
    for (int n = 0; n < kOutputTiles; n += 2) {
      uint32_t r[4];
      LdMatrixX4(r,
                 weights + (8 * n + lane / 16 * 8 + lane % 8) * kRowBytes + at + lane / 8 % 2 * 16);
      b[n][0] = r[0];
      b[n][1] = r[1];
      b[n + 1][0] = r[2];
      b[n + 1][1] = r[3];
    }
    BH_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      uint32_t a[4];
      LdMatrixX4(a, inputs + (16 * m + lane % 16) * kRowBytes + at + lane / 16 * 16);
      BH_UNROLL
      for (int n = 0; n < kOutputTiles; ++n) {
        if constexpr (kF16) {
          MmaF16(sums[m][n], a, b[n]);
        } else {
          MmaBf16(sums[m][n], a, b[n]);
        }
      }
    }
  }

  // Multiplies by the outputs' factors; the warp has outputs from `output` on.
  BH_DEVICE void Scale(const PackedWeight& weight, int output) {
    BH_UNROLL
    for (int n = 0; n < kOutputTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float factor = FactorOf(weight, output + 8 * n + LaneIndex() % 4 * 2 + i);
        BH_UNROLL
        for (int m = 0; m < kTokenTiles; ++m) {
          sums[m][n][i] *= factor;
          sums[m][n][i + 2] *= factor;
        }
      }
    }
  }

  // Adds the sums of a part, and resets them to zero.
  BH_DEVICE void Take(WarpSums& part) {
    BH_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      BH_UNROLL
      for (int n = 0; n < kOutputTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) {
          sums[m][n][i] += part.sums[m][n][i];
          part.sums[m][n][i] = 0.0F;
        }
      }
    }
  }

  // store(token, output, sum) for each of the block's sums.
  template <typename Store>
  BH_DEVICE void ForEach(int warp_token, int warp_output, const Store& store) const {
    BH_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      BH_UNROLL
      for (int n = 0; n < kOutputTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) {
          store(warp_token + 16 * m + LaneIndex() / 4 + i / 2 * 8,
                warp_output + 8 * n + LaneIndex() % 4 * 2 + i % 2, sums[m][n][i]);
        }
      }
    }
  }
};

// One block's tile: its 128 rows of x (input_row(i) is the location of row i, or -1) times the
// weight's rows from output0 on; store(token of the tile, output of the tile, sum) for each.
template <bool kF16, typename InputRow, typename Store>
BH_DEVICE void MultiplyNumbers(const uint16_t* x, const InputRow& input_row,
                               const PackedWeight& weight, int output0, const Store& store) {
  unsigned char* const shared = SharedMemory();
  const int depth = weight.depth;
  const int steps = depth / kStepInputs;
  const RowCopies inputs(x, input_row, depth);
  const RowCopies weights(
      weight.numbers, [&](int row) { return output0 + row < weight.rows ? output0 + row : -1; },
      depth);
  const auto load = [&](int step) {
    if (step < steps) {
      unsigned char* const stage = shared + step % kStages * kStageBytes;
      inputs.Copy(step, stage);
      weights.Copy(step, stage + kOperandBytes);
    }
    CpAsyncCommit();  // empty groups count as well
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  const int warp_token = WarpIndex() % 2 * kWarpTokens;
  const int warp_output = WarpIndex() / 2 * kWarpOutputs;
  WarpSums<kF16> sums;
  for (int step = 0; step < steps; ++step) {
    CpAsyncWait<kStages - 2>();
    __syncthreads();  // the stage has arrived, and all threads are done with the previous one
    load(step + kStages - 1);
    const unsigned char* const stage = shared + step % kStages * kStageBytes;
    BH_UNROLL
    for (int at = 0; at < kStepInputs * 2; at += 32) {
      sums.Add(stage + warp_token * kRowBytes, stage + kOperandBytes + warp_output * kRowBytes, at);
    }
  }
  CpAsyncWait<0>();
  sums.ForEach(warp_token, warp_output, store);
}

// Steps of kStepInputs of a block, in parts of `part_steps`; the last may have fewer. Unsigned:
// remainders then need no code for negative numbers.
struct DepthRange {
  unsigned begin = 0;
  unsigned end = 0;
  unsigned part_steps = 0;
};

// The same with codes, which go through registers. A warp has the sums of a part and, if kInParts,
// those of the previous parts.
template <WeightFormat kFormat, bool kInParts, typename InputRow, typename Store>
BH_DEVICE void MultiplyCodes(const uint16_t* x, const InputRow& input_row,
                             const PackedWeight& weight, int output0, const DepthRange& range,
                             const Store& store) {
  unsigned char* const shared = SharedMemory();
  const auto stage_of = [&](unsigned step) { return shared + step % kStages * kStageBytes; };
  const RowCopies inputs(x, input_row, weight.depth);
  const auto load = [&](unsigned step) {
    if (step < range.end) inputs.Copy(step, stage_of(step));
    CpAsyncCommit();
  };
  for (unsigned i = 0; i < kStages - 1; ++i) load(range.begin + i);
  const int row_tile = output0 / kTileRows + WarpIndex();
  Codes<kFormat> codes;
  codes.Load(weight, row_tile, range.begin);
  StoreCodes(codes, stage_of(range.begin) + kOperandBytes);
  const int warp_token = WarpIndex() % 2 * kWarpTokens;
  const int warp_output = WarpIndex() / 2 * kWarpOutputs;
  WarpSums<false> sums;
  const auto multiply_until = [&](unsigned& step, unsigned end) {
    for (; step < end; ++step) {
      const bool more = step + 1 < range.end;
      if (more) codes.Load(weight, row_tile, step + 1);
      CpAsyncWait<kStages - 2>();
      __syncthreads();  // the stage has arrived, and all threads are done with the previous one
      load(step + kStages - 1);
      const unsigned char* const stage = stage_of(step);
      BH_UNROLL
      for (int at = 0; at < kStepInputs * 2; at += 32) {
        sums.Add(stage + warp_token * kRowBytes, stage + kOperandBytes + warp_output * kRowBytes,
                 at);
      }
      if (more) StoreCodes(codes, stage_of(step + 1) + kOperandBytes);
    }
    if constexpr (kFormat == WeightFormat::kNvfp4) sums.Scale(weight, output0 + warp_output);
  };
  unsigned step = range.begin;
  if constexpr (kInParts) {
    WarpSums<false> all;
    while (step < range.end) {
      const unsigned left = range.end - step;
      multiply_until(step, step + (left < range.part_steps ? left : range.part_steps));
      all.Take(sums);
    }
    CpAsyncWait<0>();
    all.ForEach(warp_token, warp_output, store);
  } else {
    multiply_until(step, range.end);
    CpAsyncWait<0>();
    sums.ForEach(warp_token, warp_output, store);
  }
}

// Either of these, over the whole depth.
template <WeightFormat kFormat, typename InputRow, typename Store>
BH_DEVICE void MultiplyTile(const uint16_t* x, const InputRow& input_row,
                            const PackedWeight& weight, int output0, const Store& store) {
  if constexpr (IsQuantized(kFormat)) {
    const auto steps = static_cast<unsigned>(weight.depth / kStepInputs);
    MultiplyCodes<kFormat, false>(x, input_row, weight, output0, {0, steps, steps}, store);
  } else {
    MultiplyNumbers<kFormat == WeightFormat::kF16>(x, input_row, weight, output0, store);
  }
}

}  // namespace bulkhead::cuda
