// The stretches of attention to the cache of sequences of one token, added in their order.
#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

BH_KERNEL(kHeadWarps* kWarp) Combine(AttendParameters p) {
  AwaitPrevious();
  const int seq = BlockX();
  const int head = BlockY() * kHeadWarps + WarpIndex();
  const int token = p.cache.seq_begin[seq];
  if (head >= p.num_heads || p.cache.seq_begin[seq + 1] - token != 1) return;
  const int position = p.cache.position[token];
  const int first = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
  const int begin = first / p.split_tokens;
  const int end = position / p.split_tokens + 1;
  const int64_t row0 = static_cast<int64_t>(seq) * p.splits * p.num_heads + head;
  float greatest = p.part_sums[2 * (row0 + begin * p.num_heads)];
  for (int split = begin + 1; split < end; ++split) {
    greatest = fmaxf(greatest, p.part_sums[2 * (row0 + split * p.num_heads)]);
  }
  const int d = p.cache.head_dim;
  for (int dim = LaneIndex(); dim < d; dim += kWarp) {
    float out = 0.0F;
    float sum = 0.0F;
    for (int split = begin; split < end; ++split) {
      const int64_t row = row0 + static_cast<int64_t>(split) * p.num_heads;
      const float scale = Exp2(p.part_sums[2 * row] - greatest);
      sum = fmaf(scale, p.part_sums[2 * row + 1], sum);
      out = fmaf(scale, p.parts[row * d + dim], out);
    }
    p.out.data[token * p.out.stride + static_cast<int64_t>(head) * d + dim] = out / sum;
  }
}

}  // namespace

CudaKernelOf<AttendParameters> CombineKernel() { return KernelOf("combine", Combine); }

}  // namespace bulkhead::cuda
