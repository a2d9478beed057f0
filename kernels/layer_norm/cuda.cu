#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead {
namespace cuda {

struct LayerNormParameters {
  ConstRows x;
  const float* weight = nullptr;  // [D]
  const float* bias = nullptr;    // [D] or null
  float epsilon = 0;
  int width = 0;  // D
  OutRows out;
};

namespace {

// The sum over the block, in one fixed order; every thread gets it.
BH_DEVICE float SumOfBlock(float value) {
  auto* const sums = reinterpret_cast<float*>(SharedMemory());
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kFullMask, value, mask);
  if (LaneIndex() == 0) sums[WarpIndex()] = value;
  __syncthreads();
  float sum = 0.0F;
  BH_UNROLL
  for (int i = 0; i < kRowThreads / kWarp; ++i) sum += sums[i];
  __syncthreads();  // the next sum writes after these reads
  return sum;
}

// Every thread reads and writes the same elements, so that the output may be x.
BH_KERNEL(kRowThreads) LayerNorm(LayerNormParameters p) {
  GridDependencySynchronize();
  const float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  float sum = 0.0F;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) sum += x[i];
  const float mean = SumOfBlock(sum) / static_cast<float>(p.width);
  float squares = 0.0F;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads)
    squares = fmaf(x[i] - mean, x[i] - mean, squares);
  const float variance = SumOfBlock(squares) / static_cast<float>(p.width);
  const float scale = 1.0F / sqrtf(variance + p.epsilon);
  const int64_t row = int(blockIdx.x) * p.out.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) {
    const float normed = (x[i] - mean) * scale * p.weight[i];
    StoreOut(p.out, row + i, p.bias == nullptr ? normed : normed + p.bias[i]);
  }
}

CudaKernelOf<LayerNormParameters> LayerNormKernel() {
  return KernelOf<kRowThreads>("layer_norm", LayerNorm);
}

const KernelRegistration kRegistered(LayerNormKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::LayerNorm(ConstMatrixView x, ConstMatrixView weight, ConstMatrixView bias,
                            float epsilon, MatrixView out) {
  if (out.empty()) return;
  LaunchShape shape = cuda::OneBlockPerRow(out);
  shape.shared_bytes = cuda::kRowThreads / 32 * 4;
  Enqueue(driver_, cuda::LayerNormKernel(), shape,
          {cuda::RowsOf(x), weight.F32(), cuda::VectorOf(bias), epsilon,
           static_cast<int>(out.cols()), cuda::OutRowsOf(out)});
}

}  // namespace bulkhead
