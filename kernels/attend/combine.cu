// Adds the splits of attention, in order.
#include "intrinsics.h"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

// Splits, and dims of each lane, whose loads are issued before any is used.
constexpr int kAtOnce = 16;
constexpr int kDimsOfLane = 4;
using Parts = float[kAtOnce][kDimsOfLane];

// One head of one token: `count` splits, split 0 in row `row0` of the sums, others `step` rows
// apart; a row is one head's.
struct SplitsOfHead {
  int token = 0;
  int head = 0;
  int count = 0;
  int64_t row0 = 0;
  int64_t step = 0;

  BH_DEVICE SplitsOfHead() {}
  BH_DEVICE SplitsOfHead(const AttendParameters& p, int head_index, const CombineItem& item)
      : token(item.token), head(head_index) {
    const int position = p.cache.position[token];
    const int begin = FirstSeen(p, position) / item.split_tokens;
    count = position / item.split_tokens + 1 - begin;
    step = static_cast<int64_t>(item.row_step) * p.num_heads;
    row0 = static_cast<int64_t>(item.row) * p.num_heads + begin * step + head;
  }
};

// Loads splits from `split0` on and dims from `dim0` on, kWarp apart.
BH_DEVICE void LoadParts(const AttendParameters& p, const SplitsOfHead& splits, int split0,
                         int dim0, Parts& parts) {
  BH_UNROLL
  for (int i = 0; i < kAtOnce; ++i) {
    const float* const row = p.parts + (splits.row0 + (split0 + i) * splits.step) * p.out_dim;
    BH_UNROLL
    for (int k = 0; k < kDimsOfLane; ++k) {
      const int dim = dim0 + k * kWarp + LaneIndex();
      parts[i][k] = split0 + i < splits.count && dim < p.out_dim ? row[dim] : 0.0F;
    }
  }
}

// One head of one token per warp. Lane i weighs every 32nd split from split i on.
BH_DEVICE void AddSplits(const AttendParameters& p, const SplitsOfHead& splits) {
  constexpr int kOfLane = kMaxSplits / kWarp;
  float* const scales = reinterpret_cast<float*>(SharedMemory()) + WarpIndex() * kMaxSplits;
  Parts parts;
  LoadParts(p, splits, 0, 0, parts);
  float greatest_of[kOfLane];
  float sum_of[kOfLane];
  float greatest = kMaskedScore;
  BH_UNROLL
  for (int i = 0; i < kOfLane; ++i) {
    const int split = i * kWarp + LaneIndex();
    const int64_t at = 2 * (splits.row0 + split * splits.step);
    const bool is_one = split < splits.count;
    greatest_of[i] = is_one ? p.part_sums[at] : kMaskedScore;
    sum_of[i] = is_one ? p.part_sums[at + 1] : 0.0F;
    greatest = fmaxf(greatest, greatest_of[i]);
  }
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(kFullMask, greatest, mask));
  }
  float sum = 0.0F;
  BH_UNROLL
  for (int i = 0; i < kOfLane; ++i) {
    const int split = i * kWarp + LaneIndex();
    const float scale = split < splits.count ? Exp2(greatest_of[i] - greatest) : 0.0F;
    scales[split] = scale;
    sum = fmaf(scale, sum_of[i], sum);
  }
  __syncwarp();
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  const float shrink = AddSink(p, splits.head, greatest, sum);
  for (int dim0 = 0; dim0 < p.out_dim; dim0 += kDimsOfLane * kWarp) {
    float out[kDimsOfLane] = {};
    for (int split0 = 0; split0 < splits.count; split0 += kAtOnce) {
      if (dim0 > 0 || split0 > 0) LoadParts(p, splits, split0, dim0, parts);
      BH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const float weight = scales[split0 + i];
        BH_UNROLL
        for (int k = 0; k < kDimsOfLane; ++k) out[k] = fmaf(weight, parts[i][k], out[k]);
      }
    }
    BH_UNROLL
    for (int k = 0; k < kDimsOfLane; ++k) {
      const int dim = dim0 + k * kWarp + LaneIndex();
      if (dim >= p.out_dim) continue;
      StoreOut(p.out,
               splits.token * p.out.stride + static_cast<int64_t>(splits.head) * p.out_dim + dim,
               out[k] * shrink / sum);
    }
  }
}

// For sequences of one token.
BH_KERNEL(kHeadWarps* kWarp) Combine(AttendParameters p) {
  const int seq = int(blockIdx.x);
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  const int token = p.cache.seq_begin[seq];
  const bool decodes = head < p.num_heads && p.cache.seq_begin[seq + 1] - token == 1;
  SplitsOfHead splits;
  if (decodes) {
    const int split_tokens = SplitTokens(1, p.cache.position[token] + 1, p.splits, p.max_part_rows);
    splits = SplitsOfHead(p, head, {token, seq * p.splits, 1, split_tokens});
  }
  GridDependencySynchronize();
  if (!decodes || (splits.count == 1 && p.stores_single_splits)) return;
  AddSplits(p, splits);
}

// For the tokens of sequences of several tokens.
BH_KERNEL(kHeadWarps* kWarp) CombineTokens(AttendParameters p) {
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  const CombineItem item = LoadVector<CombineItem>(p.combined + int(blockIdx.x));
  const SplitsOfHead splits(p, head, item);
  GridDependencySynchronize();
  if (head < p.num_heads) AddSplits(p, splits);
}

}  // namespace

CudaKernelOf<AttendParameters> CombineKernel() {
  return KernelOf<kHeadWarps * kWarp>("combine", Combine);
}

CudaKernelOf<AttendParameters> CombineTokensKernel() {
  return KernelOf<kHeadWarps * kWarp>("combine tokens", CombineTokens);
}

const KernelRegistration kRegistered(CombineKernel(), CombineTokensKernel());

}  // namespace bulkhead::cuda
