#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead {
namespace cuda {

// Of x, or of x + factor * (addend (+ bias where there is one)), which goes to `added`.
inline constexpr int kNormThreads = 512;
// `vec4`: rows of up to kMaxNormVec4Cols in vectors of 4: width and stride are multiples of 4,
// 16-byte aligned. Each number is then read once.
inline constexpr int kNormVec4 = 4;  // vectors of a thread
inline constexpr int kMaxNormVec4Cols = kNormVec4 * kNormThreads * 4;
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
  for (int i = 0; i < kNormThreads / kWarp; ++i) sum += sums[i];
  return sum;
}

BH_DEVICE float ScaleOf(float squares, const RmsNormParameters& p) {
  const float mean = SumOfBlock(squares) / static_cast<float>(p.width);
  return 1.0F / sqrtf(mean + p.epsilon);
}

// The first column of a thread's four numbers `j`.
BH_DEVICE int ColumnOf(int j) { return (j * kNormThreads + int(threadIdx.x)) * 4; }

// rows += addend (+ bias), which goes to `added`, too.
BH_DEVICE void AddTo(Floats4 (&rows)[kNormVec4], const RmsNormParameters& p) {
  const float* const addend = p.addend.data + int(blockIdx.x) * p.addend.stride;
  float* const added = p.added.data + int(blockIdx.x) * p.added.stride;
  Floats4 addends[kNormVec4] = {};
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) < p.width) addends[j] = LoadFour(addend + ColumnOf(j));
  }
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) >= p.width) break;
    Floats4 bias = {};
    if (p.bias != nullptr) bias = LoadFour(p.bias + ColumnOf(j));
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      rows[j].v[i] +=
          p.factor * (p.bias == nullptr ? addends[j].v[i] : addends[j].v[i] + bias.v[i]);
    }
    StoreFour(added + ColumnOf(j), rows[j]);
  }
}

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

// The same of aligned rows: all loads are issued before any is used, those of the weight, which no
// kernel writes, before the kernel in front has ended.
template <bool kAdds>
BH_KERNEL(kNormThreads)
RmsNormVec4(RmsNormParameters p) {
  Floats4 weights[kNormVec4] = {};
  Floats4 rows[kNormVec4] = {};
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) < p.width) weights[j] = LoadFour(p.weight + ColumnOf(j));
  }
  GridDependencySynchronize();
  const float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) < p.width) rows[j] = LoadFour(x + ColumnOf(j));
  }
  if constexpr (kAdds) AddTo(rows, p);
  float squares = 0.0F;
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) squares = fmaf(rows[j].v[i], rows[j].v[i], squares);
  }
  const float scale = ScaleOf(squares, p);
  BH_UNROLL
  for (int j = 0; j < kNormVec4; ++j) {
    if (ColumnOf(j) >= p.width) break;
    BH_UNROLL
    for (int i = 0; i < 4; ++i) rows[j].v[i] = rows[j].v[i] * scale * weights[j].v[i];
    StoreFourOut(p.out, int(blockIdx.x) * p.out.stride + ColumnOf(j), rows[j]);
  }
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
  shape.shared_bytes = kNormThreads / 32 * 4;
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
