// Products with weights in f32 and unrounded inputs: for routers, with some hundred outputs. For up
// to 512 tokens a block has 8 tokens and one output, whose weight it requests before the previous
// kernel has ended; for more, a block has 16 tokens by 32 outputs, and its warps share the depth.
#include "intrinsics.h"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

// Four inputs of a token from `at`, a multiple of 4, on; 0 after the last one.
BH_DEVICE Floats4 LoadInputs(const F32ProductParameters& p, int token, int at) {
  Floats4 x = {};
  const int64_t place = token * p.x_stride + at;
  if (p.vec4) {
    if (at >= p.inputs) return x;
    if (p.numbers == Numbers::kF32) return LoadFour(static_cast<const float*>(p.x) + place);
    struct alignas(8) Four {
      uint16_t bits[4];
    };
    const Four four = LoadVector<Four>(static_cast<const uint16_t*>(p.x) + place);
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      x.v[i] = p.numbers == Numbers::kBF16 ? F32OfBf16(four.bits[i]) : F32OfF16(four.bits[i]);
    }
    return x;
  }
  BH_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (at + i >= p.inputs) continue;
    if (p.numbers == Numbers::kF32) {
      x.v[i] = static_cast<const float*>(p.x)[place + i];
    } else {
      const uint16_t bits = static_cast<const uint16_t*>(p.x)[place + i];
      x.v[i] = p.numbers == Numbers::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
    }
  }
  return x;
}

BH_DEVICE float AddDot(const Floats4& a, const Floats4& b, float sum) {
  BH_UNROLL
  for (int i = 0; i < 4; ++i) sum = fmaf(a.v[i], b.v[i], sum);
  return sum;
}

constexpr int kFewWarps = kF32FewThreads / kWarp;
constexpr int kFewLoads = 4;  // of a weight per thread at once

BH_KERNEL(kF32FewThreads) LinearF32Few(F32ProductParameters p) {
  const int output = int(blockIdx.x);
  const int token0 = int(blockIdx.y) * kF32FewTokens;
  const float* const weight = p.weight + static_cast<int64_t>(output) * p.depth;
  Floats4 w[kFewLoads];
  const auto place = [](int first, int i) {
    return first + (i * kF32FewThreads + int(threadIdx.x)) * 4;
  };
  const auto load = [&](int first) {
    BH_UNROLL
    for (int i = 0; i < kFewLoads; ++i) {
      const int at = place(first, i);
      w[i] = at < p.depth ? LoadFour(weight + at) : Floats4{};
    }
  };
  load(0);
  GridDependencySynchronize();  // no kernel writes weights
  float sums[kF32FewTokens] = {};
  constexpr int kStep = kFewLoads * kF32FewThreads * 4;
  for (int first = 0; first < p.depth; first += kStep) {
    BH_UNROLL
    for (int t = 0; t < kF32FewTokens; ++t) {
      if (token0 + t >= p.tokens) continue;
      BH_UNROLL
      for (int i = 0; i < kFewLoads; ++i) {
        sums[t] = AddDot(w[i], LoadInputs(p, token0 + t, place(first, i)), sums[t]);
      }
    }
    if (first + kStep < p.depth) load(first + kStep);
  }
  auto* const shared = reinterpret_cast<float*>(SharedMemory());  // [warp][token]
  BH_UNROLL
  for (int t = 0; t < kF32FewTokens; ++t) {
    BH_UNROLL
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      sums[t] += __shfl_xor_sync(kFullMask, sums[t], mask);
    }
    if (LaneIndex() == 0) shared[WarpIndex() * kF32FewTokens + t] = sums[t];
  }
  __syncthreads();
  const int t = int(threadIdx.x);
  if (t >= kF32FewTokens || token0 + t >= p.tokens) return;
  float sum = 0.0F;
  BH_UNROLL
  for (int warp = 0; warp < kFewWarps; ++warp) sum += shared[warp * kF32FewTokens + t];
  p.out.data[(token0 + t) * p.out.stride + output] = sum;
}

constexpr int kTileWarps = kF32TileThreads / kWarp;
constexpr int kLaneSide = 4;    // tokens, and outputs, per lane
constexpr int kRunInputs = 32;  // consecutive inputs per warp
static_assert(kF32TileTokens * kF32TileOutputs == kWarp * kLaneSide * kLaneSide);

BH_KERNEL(kF32TileThreads) LinearF32(F32ProductParameters p) {
  GridDependencySynchronize();
  constexpr int kOutputLanes = kF32TileOutputs / kLaneSide;
  const int token0 = int(blockIdx.y) * kF32TileTokens;
  const int output0 = int(blockIdx.x) * kF32TileOutputs;
  const int lane_token = LaneIndex() / kOutputLanes * kLaneSide;
  const int lane_output = LaneIndex() % kOutputLanes * kLaneSide;
  int tokens[kLaneSide];  // absent ones repeat the last one, and are not stored
  const float* weights[kLaneSide];
  BH_UNROLL
  for (int i = 0; i < kLaneSide; ++i) {
    const int token = token0 + lane_token + i;
    const int output = output0 + lane_output + i;
    tokens[i] = token < p.tokens ? token : p.tokens - 1;
    weights[i] =
        p.weight + static_cast<int64_t>(output < p.outputs ? output : p.outputs - 1) * p.depth;
  }
  float sums[kLaneSide][kLaneSide] = {};
  for (int run = WarpIndex() * kRunInputs; run < p.depth; run += kTileWarps * kRunInputs) {
    BH_NO_UNROLL
    for (int at = run; at < run + kRunInputs; at += 4) {
      Floats4 x[kLaneSide];
      Floats4 w[kLaneSide];
      BH_UNROLL
      for (int i = 0; i < kLaneSide; ++i) {
        x[i] = LoadInputs(p, tokens[i], at);
        w[i] = LoadFour(weights[i] + at);
      }
      BH_UNROLL
      for (int i = 0; i < kLaneSide; ++i) {
        BH_UNROLL
        for (int j = 0; j < kLaneSide; ++j) sums[i][j] = AddDot(x[i], w[j], sums[i][j]);
      }
    }
  }
  auto* const shared = reinterpret_cast<float*>(SharedMemory());  // [warp][token][output]
  constexpr int kTile = kF32TileTokens * kF32TileOutputs;
  BH_UNROLL
  for (int i = 0; i < kLaneSide; ++i) {
    float* const to =
        shared + WarpIndex() * kTile + (lane_token + i) * kF32TileOutputs + lane_output;
    StoreFour(to, {{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}});
  }
  __syncthreads();
  for (int at = int(threadIdx.x); at < kTile; at += kF32TileThreads) {
    const int token = token0 + at / kF32TileOutputs;
    const int output = output0 + at % kF32TileOutputs;
    float sum = 0.0F;
    BH_UNROLL
    for (int warp = 0; warp < kTileWarps; ++warp) sum += shared[warp * kTile + at];
    if (token < p.tokens && output < p.outputs) p.out.data[token * p.out.stride + output] = sum;
  }
}

}  // namespace

CudaKernelOf<F32ProductParameters> LinearF32Kernel(bool few_tokens) {
  return few_tokens ? KernelOf<kF32FewThreads>("linear f32, few tokens", LinearF32Few)
                    : KernelOf<kF32TileThreads>("linear f32", LinearF32);
}

const KernelRegistration kRegistered(LinearF32Kernel(true), LinearF32Kernel(false));

}  // namespace bulkhead::cuda
