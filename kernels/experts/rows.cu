// Operations on single rows of pairs, and of tokens.
#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/experts/cuda_kernels.h"

namespace bulkhead {
namespace cuda {

// x[i] *= factors[i]; grid {R, width / kSumCols}
struct ScaleRowsParameters {
  const float* factors = nullptr;
  int width = 0;
  OutRows x;
};

// x[p] += the bias of p's expert; grid {P}
struct AddExpertBiasParameters {
  ConstRows biases;  // [E]
  const int32_t* expert_begin = nullptr;
  int num_experts = 0;
  int width = 0;
  Rows x;
};

// hidden[t] += the biases of the token's experts times their weights; grid {T}
struct AddWeightedBiasesParameters {
  ConstRows biases;                  // [E]
  const int32_t* experts = nullptr;  // [T, k]
  const float* weights = nullptr;    // [T, k]
  int experts_per_token = 0;
  int width = 0;
  Rows hidden;
};

namespace {

BH_KERNEL(kRowThreads) ScaleRows(ScaleRowsParameters p) {
  GridDependencySynchronize();
  const float factor = p.factors[int(blockIdx.x)];
  const int64_t row = int(blockIdx.x) * p.x.stride;
  constexpr int kCols = kSumCols / kRowThreads;
  const int first = int(blockIdx.y) * kSumCols + int(threadIdx.x);
  BH_UNROLL
  for (int i = 0; i < kCols; ++i) {
    const int col = first + i * kRowThreads;
    if (col >= p.width) continue;
    float x;
    if (p.x.numbers == Numbers::kF32) {
      x = static_cast<const float*>(p.x.data)[row + col];
    } else {
      const uint16_t bits = static_cast<const uint16_t*>(p.x.data)[row + col];
      x = p.x.numbers == Numbers::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
    }
    StoreOut(p.x, row + col, x * factor);
  }
}

BH_KERNEL(kRowThreads) AddExpertBias(AddExpertBiasParameters p) {
  GridDependencySynchronize();
  const int pair = int(blockIdx.x);
  int expert = 0;  // the last expert whose pairs begin at or before the pair
  for (int begin = 0, end = p.num_experts; begin < end;) {
    const int middle = (begin + end) / 2;
    if (p.expert_begin[middle] <= pair) {
      expert = middle;
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  const float* const bias = p.biases.data + expert * p.biases.stride;
  float* const x = p.x.data + pair * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) x[i] += bias[i];
}

BH_KERNEL(kRowThreads) AddWeightedBiases(AddWeightedBiasesParameters p) {
  GridDependencySynchronize();
  const int k = p.experts_per_token;
  float* const hidden = p.hidden.data + int(blockIdx.x) * p.hidden.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) {
    float sum = hidden[i];
    for (int choice = int(blockIdx.x) * k; choice < (int(blockIdx.x) + 1) * k; ++choice) {
      sum += p.weights[choice] * p.biases.data[p.experts[choice] * p.biases.stride + i];
    }
    hidden[i] = sum;
  }
}

template <bool kVec4>
BH_KERNEL(kRowThreads)
SumPairs(SumPairsParameters p) {
  GridDependencySynchronize();
  const int32_t* const pair_at = p.pair_at + int(blockIdx.x) * p.experts_per_token;
  float* const out = p.out.data + int(blockIdx.x) * p.out.stride;
  if constexpr (kVec4) {
    const int col = int(blockIdx.y) * kSumCols + int(threadIdx.x) * 4;
    if (col >= p.width) return;
    Floats4 sum = LoadFour(p.pairs.data + pair_at[0] * p.pairs.stride + col);
    for (int i = 1; i < p.experts_per_token; ++i) {
      const Floats4 next = LoadFour(p.pairs.data + pair_at[i] * p.pairs.stride + col);
      BH_UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] += next.v[j];
    }
    if (p.adds) {
      const Floats4 shared = LoadFour(out + col);
      BH_UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] += shared.v[j];
    }
    StoreFour(out + col, sum);
  } else {
    for (int i = 0; i < kSumCols / kRowThreads; ++i) {
      const int col = int(blockIdx.y) * kSumCols + i * kRowThreads + int(threadIdx.x);
      if (col >= p.width) return;
      float sum = p.pairs.data[pair_at[0] * p.pairs.stride + col];
      for (int j = 1; j < p.experts_per_token; ++j) {
        sum += p.pairs.data[pair_at[j] * p.pairs.stride + col];
      }
      out[col] = p.adds ? sum + out[col] : sum;
    }
  }
}

CudaKernelOf<ScaleRowsParameters> ScaleRowsKernel() {
  return KernelOf<kRowThreads>("scale_rows", ScaleRows);
}
CudaKernelOf<AddExpertBiasParameters> AddExpertBiasKernel() {
  return KernelOf<kRowThreads>("add_expert_bias", AddExpertBias);
}
CudaKernelOf<AddWeightedBiasesParameters> AddWeightedBiasesKernel() {
  return KernelOf<kRowThreads>("add_weighted_biases", AddWeightedBiases);
}

}  // namespace

CudaKernelOf<SumPairsParameters> SumPairsKernel(bool vec4) {
  return vec4 ? KernelOf<kRowThreads>("sum_pairs, vec4", SumPairs<true>)
              : KernelOf<kRowThreads>("sum_pairs", SumPairs<false>);
}

const KernelRegistration kRegistered(ScaleRowsKernel(), AddExpertBiasKernel(),
                                     AddWeightedBiasesKernel(), SumPairsKernel(false),
                                     SumPairsKernel(true));

}  // namespace cuda

void CudaBackend::ScaleRows(const float* factors, MatrixView x) {
  if (x.empty()) return;
  LaunchShape shape = cuda::OneBlockPerRow(x);
  shape.grid[1] = cuda::NumBlocks(x.cols(), cuda::kSumCols);
  Enqueue(driver_, cuda::ScaleRowsKernel(), shape,
          {factors, static_cast<int>(x.cols()), cuda::OutRowsOf(x)});
}

void CudaBackend::AddExpertBias(ConstMatrixView biases, const ExpertRouting& routing,
                                MatrixView x) {
  BH_CHECK(biases.rows() == routing.num_experts && biases.cols() == x.cols());
  if (x.empty()) return;
  Enqueue(driver_, cuda::AddExpertBiasKernel(), cuda::OneBlockPerRow(x),
          {cuda::RowsOf(biases), routing.expert_begin, routing.num_experts,
           static_cast<int>(x.cols()), cuda::RowsOf(x)});
}

void CudaBackend::AddWeightedBiases(ConstMatrixView biases, const ExpertRouting& routing,
                                    MatrixView hidden) {
  BH_CHECK(biases.rows() == routing.num_experts && biases.cols() == hidden.cols());
  if (hidden.empty()) return;
  Enqueue(driver_, cuda::AddWeightedBiasesKernel(), cuda::OneBlockPerRow(hidden),
          {cuda::RowsOf(biases), routing.experts, routing.weights, routing.experts_per_token,
           static_cast<int>(hidden.cols()), cuda::RowsOf(hidden)});
}

}  // namespace bulkhead
