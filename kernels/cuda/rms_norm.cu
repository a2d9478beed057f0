#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {
namespace {

// The sum over the block, in one fixed order; every thread gets it.
BH_DEVICE float SumOfBlock(float value) {
  auto* const sums = reinterpret_cast<float*>(SharedMemory());
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  if (LaneIndex() == 0) sums[WarpIndex()] = value;
  SyncBlock();
  float sum = 0.0F;
  BH_UNROLL
  for (int i = 0; i < kNormThreads / kWarp; ++i) sum += sums[i];
  return sum;
}

// Every thread reads and writes the same elements, so that outputs may be x.
template <bool kAdds>
BH_KERNEL(kNormThreads)
RmsNorm(RmsNormParameters p) {
  AwaitPrevious();
  const float* x = p.x.data + BlockX() * p.x.stride;
  float* const out = p.out.data + BlockX() * p.out.stride;
  float squares = 0.0F;
  if constexpr (kAdds) {
    const float* const addend = p.addend.data + BlockX() * p.addend.stride;
    float* const added = p.added.data + BlockX() * p.added.stride;
    for (int i = ThreadIndex(); i < p.width; i += kNormThreads) {
      const float sum = x[i] + (p.bias == nullptr ? addend[i] : addend[i] + p.bias[i]);
      added[i] = sum;
      squares = fmaf(sum, sum, squares);
    }
    x = added;
  } else {
    for (int i = ThreadIndex(); i < p.width; i += kNormThreads) squares = fmaf(x[i], x[i], squares);
  }
  const float mean = SumOfBlock(squares) / static_cast<float>(p.width);
  const float scale = 1.0F / sqrtf(mean + p.epsilon);
  for (int i = ThreadIndex(); i < p.width; i += kNormThreads) out[i] = x[i] * scale * p.weight[i];
}

}  // namespace

CudaKernelOf<RmsNormParameters> RmsNormKernel(bool adds) {
  return adds ? KernelOf("rms_norm of a sum", RmsNorm<true>) : KernelOf("rms_norm", RmsNorm<false>);
}

}  // namespace bulkhead::cuda
