// A row's weights, and the data that SampleRows' kernels pass on. Weights, the order of their sums
// and the ids that top-p keeps, and so every bit, are the same as in
// runtime/engine/weighted_tokens.cc.
#pragma once

#include "base/token_sampling.h"
#include "intrinsics.h"
#include "kernels/cuda/parameters.h"
#include "kernels/sample/candidates.cuh"
#include "kernels/sample/op.h"

namespace bulkhead::cuda {

struct SampleRowsParameters {
  Rows logits;
  int vocab = 0;
  int chunks = 0;                         // of kChunkIds ids
  const TokenSampling* params = nullptr;  // [rows]
  const int32_t* banned = nullptr;
  Rows scratch;  // RowScratchCols
  int32_t* sampled = nullptr;
  int32_t* last_sampled = nullptr;
  bool cut = false;  // whether CutRows has computed the cut of top-p
};

// The cut of top-p: keeps lower buckets, and of this bucket the keys that reach `key`.
struct RowCut {
  CandidateKey key = 0;
  int64_t bucket = kNumBuckets;
};

// A row's scratch.
struct RowState {
  double* sums;   // [chunks] of weights
  RowCut* cut;    // if top_p < 1
  float* maxima;  // [chunks]; +inf: a logit is NaN or +inf
};
static_assert(sizeof(RowCut) == 4 * sizeof(float));

BH_DEVICE RowState StateOf(const SampleRowsParameters& p, int row) {
  float* const scratch = p.scratch.data + row * p.scratch.stride;
  float* const behind_sums = scratch + 2 * p.chunks;
  return {reinterpret_cast<double*>(scratch), reinterpret_cast<RowCut*>(behind_sums),
          behind_sums + sizeof(RowCut) / sizeof(float)};
}
BH_DEVICE const float* LogitsOf(const SampleRowsParameters& p, int row) {
  return p.logits.data + row * p.logits.stride;
}
BH_DEVICE int IdsOfChunk(const SampleRowsParameters& p, int chunk) {
  const int left = p.vocab - chunk * kChunkIds;
  return left < kChunkIds ? left : kChunkIds;
}

// The maximum over all threads; `of_warp` [kWarp] is shared.
BH_DEVICE float BlockMax(float x, float* of_warp) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullMask, x, mask));
  }
  if (LaneIndex() == 0) of_warp[WarpIndex()] = x;
  __syncthreads();
  float max = of_warp[0];
  for (int warp = 1; warp < int(blockDim.x) / kWarp; ++warp) max = fmaxf(max, of_warp[warp]);
  __syncthreads();
  return max;
}
BH_DEVICE float RowMax(const RowState& state, int chunks, float* of_warp) {
  float max = -INFINITY;
  for (int i = int(threadIdx.x); i < chunks; i += int(blockDim.x)) {
    max = fmaxf(max, state.maxima[i]);
  }
  return BlockMax(max, of_warp);
}
BH_DEVICE bool HasToken(float row_max) { return row_max > -INFINITY && row_max < INFINITY; }

// The weight of an id; 0 if it is not kept.
struct Weigher {
  double max;
  double per_temperature;
  double least;
  double least_exponent = -700;  // e^-700 is less than kNoWeight
  RowCut cut = {};

  BH_DEVICE Weigher(float row_max, const TokenSampling& sampling)
      : max(row_max),
        per_temperature(sampling.per_temperature),
        least(sampling.min_p > kNoWeight ? sampling.min_p : kNoWeight) {}

  BH_DEVICE double operator()(float logit, int32_t id) const {
    const double exponent = (static_cast<double>(logit) - max) * per_temperature;
    if (!(exponent >= least_exponent)) return 0;
    const double weight = ExpOfNonPositive(exponent);
    if (!(weight >= least)) return 0;
    const int64_t bucket = BucketOf(weight);
    const bool kept = bucket < cut.bucket || (bucket == cut.bucket && KeyOf(logit, id) >= cut.key);
    return kept ? weight : 0;
  }

  // Skips the exponentials of most ids in later buckets: weights of this bucket are at least
  // 2^-(1 + bucket / 16), of the last one any size.
  BH_DEVICE void SkipBehind(int bucket) {
    if (bucket < kNumBuckets - 1) least_exponent = -0.7 * (bucket / 16 + 2);
  }
};

// Copies the chunks' sums to `copies` [chunks] in shared memory; thread 0 gets their sum.
BH_DEVICE double Total(const RowState& state, int chunks, double* copies) {
  for (int i = int(threadIdx.x); i < chunks; i += int(blockDim.x)) copies[i] = state.sums[i];
  __syncthreads();
  double total = 0;
  for (int i = 0; i < chunks && int(threadIdx.x) == 0; ++i) total += copies[i];
  return total;
}

// Computes the cut of top-p into the rows' scratch (top_p.cu).
CudaKernelOf<SampleRowsParameters> CutRowsKernel();
int64_t CutBytes(int chunks);  // of shared memory

}  // namespace bulkhead::cuda
