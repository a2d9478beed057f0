// Products for many tokens: a block computes 128 tokens by 128 outputs, 32 inputs at a time, which
// come to shared memory by copies that run ahead. Each of its eight warps has 64 tokens by 32
// outputs in registers. Weights and inputs lie as cuda_layout.h and GatherInputs leave them.
// Codes become (code - zero) scale, rounded to bf16, on their way to shared memory.
#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/codes.cuh"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

constexpr int kStepInputs = 32;
constexpr int kStages = 4;
constexpr int kRowBytes = kStepInputs * 2 + 16;  // rows of a tile lie in different banks
constexpr int kOperandBytes = kGemmTile * kRowBytes;
constexpr int kStageBytes = 2 * kOperandBytes;  // inputs, weights
constexpr int kWarpTokens = 64;
constexpr int kWarpOutputs = 32;
constexpr int kTokenTiles = kWarpTokens / 16;
constexpr int kOutputTiles = kWarpOutputs / 8;
static_assert(kStages * kStageBytes == kGemmSharedBytes);

// 128 rows of 32 numbers each from row-major memory; rows from `rows` on are zero.
BH_DEVICE void CopyRows(const unsigned char* from, int row0, int rows, int depth, int at,
                        unsigned char* to) {
  constexpr int kChunks = kStepInputs / 8;
  for (int i = int(threadIdx.x); i < kGemmTile * kChunks; i += kGemmThreads) {
    const int row = i / kChunks;
    const int number = i % kChunks * 8;
    const bool valid = row0 + row < rows;
    const int64_t source = valid ? static_cast<int64_t>(row0 + row) * depth + at + number : 0;
    CpAsync16(to + row * kRowBytes + number * 2, from + source * 2, valid);
  }
}

// A thread has one lane of one of the block's tiles of 16 rows, read a step before it is stored.
template <WeightFormat kFormat>
BH_DEVICE void StoreCodes(const Codes<kFormat>& codes, unsigned char* operand) {
  unsigned char* const to =
      operand + (WarpIndex() * kTileRows + LaneIndex() / 4) * kRowBytes + LaneIndex() % 4 * 16;
  BH_UNROLL
  for (int row = 0; row < 2; ++row) {
    *reinterpret_cast<Words4*>(to + 8 * row * kRowBytes) = codes.Numbers(row);
  }
}
static_assert(kGemmThreads / kWarp * kTileRows == kGemmTile);
static_assert(kStepInputs == kChunkInputs);

template <bool kF16>
struct WarpSums {
  float sums[kTokenTiles][kOutputTiles][4] = {};

  // 16 inputs, `at` bytes into the rows of the operands.
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

  BH_DEVICE void Store(const LinearParameters& p, int token0, int output0) const {
    BH_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      BH_UNROLL
      for (int n = 0; n < kOutputTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int token = token0 + 16 * m + LaneIndex() / 4 + i / 2 * 8;
          const int output = output0 + 8 * n + LaneIndex() % 4 * 2 + i % 2;
          if (token < p.tokens && output < p.weight.rows) {
            p.out.data[static_cast<int64_t>(token) * p.out.stride + output] = sums[m][n][i];
          }
        }
      }
    }
  }
};

template <bool kF16>
BH_KERNEL_SHARING(kGemmThreads, 2)
Gemm(LinearParameters p) {
  GridDependencySynchronize();
  unsigned char* const shared = SharedMemory();
  const int depth = p.weight.depth;
  const int steps = depth / kStepInputs;
  const int token0 = int(blockIdx.y) * kGemmTile;
  const int output0 = int(blockIdx.x) * kGemmTile;
  const auto load = [&](int step) {
    if (step < steps) {
      unsigned char* const stage = shared + step % kStages * kStageBytes;
      const int at = step * kStepInputs;
      CopyRows(reinterpret_cast<const unsigned char*>(p.x), token0, p.tokens, depth, at, stage);
      CopyRows(p.weight.numbers, output0, p.weight.rows, depth, at, stage + kOperandBytes);
    }
    CpAsyncCommit();  // an empty group counts, too
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  const int warp_token = WarpIndex() % 2 * kWarpTokens;
  const int warp_output = WarpIndex() / 2 * kWarpOutputs;
  WarpSums<kF16> sums;
  for (int step = 0; step < steps; ++step) {
    CpAsyncWait<kStages - 2>();
    __syncthreads();  // the stage is there, and everybody is done with the one before
    load(step + kStages - 1);
    const unsigned char* const stage = shared + step % kStages * kStageBytes;
    BH_UNROLL
    for (int at = 0; at < kStepInputs * 2; at += 32) {
      sums.Add(stage + warp_token * kRowBytes, stage + kOperandBytes + warp_output * kRowBytes, at);
    }
  }
  CpAsyncWait<0>();
  sums.Store(p, token0 + warp_token, output0 + warp_output);
}

// The same with codes, which go through registers.
template <WeightFormat kFormat>
BH_KERNEL(kGemmThreads)
GemmOfCodes(LinearParameters p) {
  GridDependencySynchronize();
  unsigned char* const shared = SharedMemory();
  const int depth = p.weight.depth;
  const int steps = depth / kStepInputs;
  const int token0 = int(blockIdx.y) * kGemmTile;
  const int output0 = int(blockIdx.x) * kGemmTile;
  const auto stage_of = [&](int step) { return shared + step % kStages * kStageBytes; };
  const auto load = [&](int step) {
    if (step < steps) {
      CopyRows(reinterpret_cast<const unsigned char*>(p.x), token0, p.tokens, depth,
               step * kStepInputs, stage_of(step));
    }
    CpAsyncCommit();
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  const int row_tile = output0 / kTileRows + WarpIndex();
  Codes<kFormat> codes;
  codes.Load(p.weight, row_tile, 0);
  StoreCodes(codes, stage_of(0) + kOperandBytes);
  const int warp_token = WarpIndex() % 2 * kWarpTokens;
  const int warp_output = WarpIndex() / 2 * kWarpOutputs;
  WarpSums<false> sums;
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) codes.Load(p.weight, row_tile, step + 1);
    CpAsyncWait<kStages - 2>();
    __syncthreads();  // the stage is there, and everybody is done with the one before
    load(step + kStages - 1);
    const unsigned char* const stage = stage_of(step);
    BH_UNROLL
    for (int at = 0; at < kStepInputs * 2; at += 32) {
      sums.Add(stage + warp_token * kRowBytes, stage + kOperandBytes + warp_output * kRowBytes, at);
    }
    if (more) StoreCodes(codes, stage_of(step + 1) + kOperandBytes);
  }
  CpAsyncWait<0>();
  sums.Store(p, token0 + warp_token, output0 + warp_output);
}

}  // namespace

CudaKernelOf<LinearParameters> GemmKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf("gemm f16", Gemm<true>);
    case WeightFormat::kInt8:
      return KernelOf("gemm int8", GemmOfCodes<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf("gemm int4", GemmOfCodes<WeightFormat::kInt4>);
    default:
      return KernelOf("gemm bf16", Gemm<false>);
  }
}

const KernelRegistration kRegistered(GemmKernel(WeightFormat::kBF16),
                                     GemmKernel(WeightFormat::kF16),
                                     GemmKernel(WeightFormat::kInt8),
                                     GemmKernel(WeightFormat::kInt4));

}  // namespace bulkhead::cuda
