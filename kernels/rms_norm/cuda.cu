#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/rms_norm/row_norm.cuh"

namespace bulkhead {
namespace cuda {
namespace {

// Every thread reads and writes the same elements, so that outputs may be x.
template <bool kAdds>
BH_KERNEL(kNormThreads)
RmsNorm(RmsNormParameters p) {
  GridDependencySynchronize();
  const float* x = p.x.data + int(blockIdx.x) * p.x.stride;
  float squares = 0.0F;
  if constexpr (kAdds) {
    const float* const addend = p.addend.data + int(blockIdx.x) * p.addend.stride;
    float* const added = p.added.data + int(blockIdx.x) * p.added.stride;
    for (int i = int(threadIdx.x); i < p.width; i += kNormThreads) {
      const float sum = x[i] + p.factor * (p.bias == nullptr ? addend[i] : addend[i] + p.bias[i]);
      added[i] = sum;
      squares = fmaf(sum, sum, squares);
    }
    x = added;
  } else {
    for (int i = int(threadIdx.x); i < p.width; i += kNormThreads)
      squares = fmaf(x[i], x[i], squares);
  }
  const float scale = ScaleOf(squares, p);
  const int64_t row = int(blockIdx.x) * p.out.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kNormThreads) {
    StoreOut(p.out, row + i, x[i] * scale * p.weight[i]);
  }
}

// The same for aligned rows: all loads are issued before any is used; the weight, which no kernel
// writes, is loaded before the previous kernel has ended.
template <bool kAdds>
BH_KERNEL(kNormThreads)
RmsNormVec4(RmsNormParameters p) {
  const int row = int(blockIdx.x);
  Floats4 weights[kNormVec4];
  Floats4 x[kNormVec4];
  LoadRow(p.weight, p.width, weights);
  GridDependencySynchronize();
  LoadRow(p.x.data + row * p.x.stride, p.width, x);
  if constexpr (kAdds) {
    Floats4 addends[kNormVec4];
    LoadRow(p.addend.data + row * p.addend.stride, p.width, addends);
    AddToRow(p, row, addends, x);
  }
  NormOfRow(p, row, weights, x);
}

CudaKernelOf<RmsNormParameters> RmsNormKernel(bool adds, bool vec4) {
  if (vec4) {
    return adds ? KernelOf<kNormThreads>("rms_norm of a sum, vec4", RmsNormVec4<true>)
                : KernelOf<kNormThreads>("rms_norm, vec4", RmsNormVec4<false>);
  }
  return adds ? KernelOf<kNormThreads>("rms_norm of a sum", RmsNorm<true>)
              : KernelOf<kNormThreads>("rms_norm", RmsNorm<false>);
}

const KernelRegistration kRegistered(RmsNormKernel(false, false), RmsNormKernel(false, true),
                                     RmsNormKernel(true, false), RmsNormKernel(true, true));

void EnqueueNorm(CudaDriver& driver, RmsNormParameters p, bool in_vec4, ConstMatrixView weight,
                 float epsilon, MatrixView out) {
  if (out.empty()) return;
  p.weight = weight.F32();
  p.epsilon = epsilon;
  p.width = static_cast<int>(out.cols());
  p.out = OutRowsOf(out);
  const bool vec4 = in_vec4 && IsVec4(weight) && IsVec4(out) && out.cols() <= kMaxNormVec4Cols;
  LaunchShape shape = OneBlockPerRow(out);
  shape.block[0] = kNormThreads;
  shape.shared_bytes = kNormSharedBytes;
  Enqueue(driver, RmsNormKernel(p.addend.data != nullptr, vec4), shape, p);
}

}  // namespace
}  // namespace cuda

void CudaBackend::RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon,
                          MatrixView out) {
  cuda::RmsNormParameters p;
  p.x = cuda::RowsOf(x);
  cuda::EnqueueNorm(driver_, p, cuda::IsVec4(x), weight, epsilon, out);
}

void CudaBackend::AddResidualNorm(ConstMatrixView sum, ConstMatrixView bias, float factor,
                                  MatrixView hidden, ConstMatrixView weight, float epsilon,
                                  MatrixView normed) {
  cuda::RmsNormParameters p;
  p.x = cuda::RowsOf(ConstMatrixView(hidden));
  p.addend = cuda::RowsOf(sum);
  p.bias = cuda::VectorOf(bias);
  p.factor = factor;
  p.added = cuda::RowsOf(hidden);
  cuda::EnqueueNorm(driver_, p, cuda::IsVec4(sum) && cuda::IsVec4(bias) && cuda::IsVec4(hidden),
                    weight, epsilon, normed);
}

}  // namespace bulkhead
