// The splits of attention to the cache, added in their order.
#include "intrinsics.h"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

constexpr int kAtOnce = 8;  // splits whose loads are issued before any is used

// A warp takes one head of one token, whose splits begin at `row` of the sums and lie row_step rows
// apart. Lane i weighs split i, kMaxSplits being a warp's lanes.
BH_DEVICE void AddSplits(const AttendParameters& p, int token, int head, const CombineItem& item) {
  static_assert(kMaxSplits <= kWarp);
  const int position = p.cache.position[token];
  const int begin = FirstSeen(p, position) / item.split_tokens;
  const int splits = position / item.split_tokens + 1 - begin;
  const int64_t step = static_cast<int64_t>(item.row_step) * p.num_heads;
  const int64_t row0 = static_cast<int64_t>(item.row) * p.num_heads + begin * step + head;
  const bool has_one = LaneIndex() < splits;
  const int64_t mine = 2 * (row0 + LaneIndex() * step);
  const float greatest_of_mine = has_one ? p.part_sums[mine] : kMaskedScore;
  const float sum_of_mine = has_one ? p.part_sums[mine + 1] : 0.0F;
  float greatest = greatest_of_mine;
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(kFullMask, greatest, mask));
  }
  const float scale = has_one ? Exp2(greatest_of_mine - greatest) : 0.0F;
  float sum = scale * sum_of_mine;
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  const float shrink = AddSink(p, head, greatest, sum);
  const int d = p.out_dim;
  for (int dim0 = 0; dim0 < d; dim0 += kWarp) {
    const int dim = dim0 + LaneIndex();
    float out = 0.0F;
    for (int split0 = 0; split0 < splits; split0 += kAtOnce) {
      float parts[kAtOnce];
      BH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t row = row0 + (split0 + i) * step;
        parts[i] = split0 + i < splits && dim < d ? p.parts[row * d + dim] : 0.0F;
      }
      BH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        out = fmaf(__shfl_sync(kFullMask, scale, (split0 + i) % kWarp), parts[i], out);
      }
    }
    if (dim < d) {
      StoreOut(p.out, token * p.out.stride + static_cast<int64_t>(head) * d + dim,
               out * shrink / sum);
    }
  }
}

// Of sequences of one token.
BH_KERNEL(kHeadWarps* kWarp) Combine(AttendParameters p) {
  GridDependencySynchronize();
  const int seq = int(blockIdx.x);
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  const int token = p.cache.seq_begin[seq];
  if (head >= p.num_heads || p.cache.seq_begin[seq + 1] - token != 1) return;
  const int split_tokens = SplitTokens(1, p.cache.position[token] + 1, p.max_part_rows);
  AddSplits(p, token, head, {token, seq * p.splits, 1, split_tokens});
}

// Of the tokens of sequences of several.
BH_KERNEL(kHeadWarps* kWarp) CombineTokens(AttendParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head >= p.num_heads) return;
  const CombineItem item = LoadVector<CombineItem>(p.combined + int(blockIdx.x));
  AddSplits(p, item.token, head, item);
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
