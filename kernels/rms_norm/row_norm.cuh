// RMSNorm of a row by one block: shared by its kernels, so that they give the same bits.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead::cuda {

// Norms x, or x + factor * (addend (+ bias if there is one)), which is stored in `added`.
inline constexpr int kNormThreads = 512;
// `vec4`: rows of up to kMaxNormVec4Cols in vectors of 4: width and stride are multiples of 4,
// 16-byte aligned. Each number is then read once.
inline constexpr int kNormVec4 = 4;  // vectors per thread
inline constexpr int kMaxNormVec4Cols = kNormVec4 * kNormThreads * 4;
inline constexpr int kNormSharedBytes = kNormThreads / kWarp * 4;
struct RmsNormParameters {
  ConstRows x;
  ConstRows addend;  // null: none
  const float* bias = nullptr;
  float factor = 1;
  Rows added;                     // may be x
  const float* weight = nullptr;  // [D]
  float epsilon = 0;
  int width = 0;  // D
  OutRows out;
};

// The sum over the block, in one fixed order; every thread gets it.
BH_DEVICE float SumOfBlock(float value) {
  auto* const sums = reinterpret_cast<float*>(SharedMemory());
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kFullMask, value, mask);
  if (LaneIndex() == 0) sums[WarpIndex()] = value;
  __syncthreads();
  float sum = 0.0F;
  BH_UNROLL
  for (int i = 0; i < kNormThreads / kWarp; ++i) sum += sums[i];
  return sum;
}

BH_DEVICE float ScaleOf(float squares, const RmsNormParameters& p) {
  const float mean = SumOfBlock(squares) / static_cast<float>(p.width);
  return 1.0F / sqrtf(mean + p.epsilon);
}

// The first column of a thread's four numbers `j`.
BH_DEVICE int ColumnOf(int j) { return (j * kNormThreads + int(threadIdx.x)) * 4; }

// A thread's numbers of a row, 0 after its end.
BH_DEVICE void LoadRow(const float* row, int width, Floats4 (&x)[kNormVec4]) {
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    x[j] = {};
    if (ColumnOf(j) < width) x[j] = LoadFour(row + ColumnOf(j));
  }
}

// x += factor * (addends (+ bias)), which is also stored in row `row` of `added`.
BH_DEVICE void AddToRow(const RmsNormParameters& p, int row, const Floats4 (&addends)[kNormVec4],
                        Floats4 (&x)[kNormVec4]) {
  float* const added = p.added.data + row * p.added.stride;
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) >= p.width) break;
    Floats4 bias = {};
    if (p.bias != nullptr) bias = LoadFour(p.bias + ColumnOf(j));
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[j].v[i] += p.factor * (p.bias == nullptr ? addends[j].v[i] : addends[j].v[i] + bias.v[i]);
    }
    StoreFour(added + ColumnOf(j), x[j]);
  }
}

// Stores the norm of x in row `row` of `out`.
BH_DEVICE void NormOfRow(const RmsNormParameters& p, int row, const Floats4 (&weights)[kNormVec4],
                         Floats4 (&x)[kNormVec4]) {
  float squares = 0.0F;
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) squares = fmaf(x[j].v[i], x[j].v[i], squares);
  }
  const float scale = ScaleOf(squares, p);
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) >= p.width) break;
    BH_UNROLL
    for (int i = 0; i < 4; ++i) x[j].v[i] = x[j].v[i] * scale * weights[j].v[i];
    StoreFourOut(p.out, row * p.out.stride + ColumnOf(j), x[j]);
  }
}

}  // namespace bulkhead::cuda
