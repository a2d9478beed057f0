#include "intrinsics.h"
#include "kernels/activation/op.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead {
namespace cuda {

// grid {T, f / kActivationCols}; `vec4`: width and stride are multiples of 4, 16-byte aligned
inline constexpr int kActivationCols = 4 * kRowThreads;
struct ActivationParameters {
  Activation activation = Activation::kSilu;
  ConstRows x;    // [T, f]
  int up_at = 0;  // columns from x to its multiplier; 0: none
  int width = 0;  // f
  OutRows out;
};

// Gates and ups in bf16; grid {T, f / kBf16ActivationCols}, eight columns per thread.
inline constexpr int kBf16ActivationCols = 8 * kRowThreads;
struct Bf16ActivationParameters {
  Activation activation = Activation::kSilu;
  const uint16_t* gate_up = nullptr;  // [T, 2f], f and stride multiples of 8, 16-byte aligned
  int64_t stride = 0;
  int width = 0;  // f
  OutRows out;    // in aligned rows
};

// grid {T, f / kActivationCols}; gates and ups interleaved.
struct ClampedSwigluParameters {
  float alpha = 1;
  float limit = 0;
  ConstRows gate_up;  // [R, 2f]
  int width = 0;      // f
  OutRows out;
};

namespace {

BH_DEVICE float Activated(Activation activation, float x) {
  if (activation == Activation::kSilu) return x / (1.0F + expf(-x));
  if (activation == Activation::kReluSquared) return x < 0.0F ? 0.0F : x * x;
  if (activation == Activation::kSigmoid) return 1.0F / (1.0F + expf(-x));
  const float y = x * fmaf(x * x, kGeluCubic, kGeluLinear);
  const float e = expf(-fabsf(y));
  return (y < 0.0F ? x * e : x) / (1.0F + e);
}

// A block takes kActivationCols columns of a row; a thread issues all its loads before using any.
template <bool kVec4, bool kGated>
BH_KERNEL(kRowThreads)
Activate(ActivationParameters p) {
  GridDependencySynchronize();
  const float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  const float* const up = x + p.up_at;
  const int64_t row = int(blockIdx.x) * p.out.stride;
  if constexpr (kVec4) {
    const int col = int(blockIdx.y) * kActivationCols + int(threadIdx.x) * 4;
    if (col >= p.width) return;
    Floats4 out = LoadFour(x + col);
    Floats4 ups = {1.0F, 1.0F, 1.0F, 1.0F};
    if constexpr (kGated) ups = LoadFour(up + col);
    BH_UNROLL
    for (int i = 0; i < 4; ++i) out.v[i] = Activated(p.activation, out.v[i]) * ups.v[i];
    StoreFourOut(p.out, row + col, out);
  } else {
    constexpr int kCols = kActivationCols / kRowThreads;
    const int first = int(blockIdx.y) * kActivationCols + int(threadIdx.x);
    float values[kCols];
    float ups[kCols];
    BH_UNROLL
    for (int i = 0; i < kCols; ++i) {
      const int col = first + i * kRowThreads;
      values[i] = col < p.width ? x[col] : 0.0F;
      ups[i] = kGated && col < p.width ? up[col] : 1.0F;
    }
    BH_UNROLL
    for (int i = 0; i < kCols; ++i) {
      const int col = first + i * kRowThreads;
      if (col < p.width) StoreOut(p.out, row + col, Activated(p.activation, values[i]) * ups[i]);
    }
  }
}

BH_DEVICE float F32OfPair(const Words4& pairs, int i) {
  const uint32_t pair = pairs.w[i / 2];
  return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
}

BH_KERNEL(kRowThreads) ActivateBf16(Bf16ActivationParameters p) {
  GridDependencySynchronize();
  const int col = int(blockIdx.y) * kBf16ActivationCols + int(threadIdx.x) * 8;
  if (col >= p.width) return;
  const uint16_t* const at = p.gate_up + int(blockIdx.x) * p.stride + col;
  const auto gates = LoadVector<Words4>(at);
  const auto ups = LoadVector<Words4>(at + p.width);
  float out[8];
  BH_UNROLL
  for (int i = 0; i < 8; ++i) {
    out[i] = Activated(p.activation, F32OfPair(gates, i)) * F32OfPair(ups, i);
  }
  const int64_t to = int(blockIdx.x) * p.out.stride + col;
  if (p.out.numbers == Numbers::kBF16) {
    Words4 pairs;
    BH_UNROLL
    for (int i = 0; i < 4; ++i) pairs.w[i] = Bf16Pair(out[2 * i], out[2 * i + 1]);
    StoreVector(static_cast<uint16_t*>(p.out.data) + to, pairs);
  } else {
    StoreFourOut(p.out, to, {out[0], out[1], out[2], out[3]});
    StoreFourOut(p.out, to + 4, {out[4], out[5], out[6], out[7]});
  }
}

CudaKernelOf<Bf16ActivationParameters> Bf16ActivationKernel() {
  return KernelOf<kRowThreads>("gated activation of bf16", ActivateBf16);
}

CudaKernelOf<ActivationParameters> ActivationKernel(bool vec4, bool gated) {
  if (gated) {
    return vec4 ? KernelOf<kRowThreads>("gated activation, vec4", Activate<true, true>)
                : KernelOf<kRowThreads>("gated activation", Activate<false, true>);
  }
  return vec4 ? KernelOf<kRowThreads>("activation, vec4", Activate<true, false>)
              : KernelOf<kRowThreads>("activation", Activate<false, false>);
}

const KernelRegistration kRegistered(ActivationKernel(false, false), ActivationKernel(false, true),
                                     ActivationKernel(true, false), ActivationKernel(true, true),
                                     Bf16ActivationKernel());

BH_KERNEL(kRowThreads) ClampedSwiglu(ClampedSwigluParameters p) {
  GridDependencySynchronize();
  const float* const x = p.gate_up.data + int(blockIdx.x) * p.gate_up.stride;
  const int64_t row = int(blockIdx.x) * p.out.stride;
  constexpr int kCols = kActivationCols / kRowThreads;
  const int first = int(blockIdx.y) * kActivationCols + int(threadIdx.x);
  BH_UNROLL
  for (int i = 0; i < kCols; ++i) {
    const int col = first + i * kRowThreads;
    if (col >= p.width) continue;
    // A NaN is kept.
    const float gate = p.limit < x[2 * col] ? p.limit : x[2 * col];
    float up = p.limit < x[2 * col + 1] ? p.limit : x[2 * col + 1];
    up = up < -p.limit ? -p.limit : up;
    StoreOut(p.out, row + col, gate / (1.0F + expf(-p.alpha * gate)) * (up + 1.0F));
  }
}

CudaKernelOf<ClampedSwigluParameters> ClampedSwigluKernel() {
  return KernelOf<kRowThreads>("clamped_swiglu", ClampedSwiglu);
}

const KernelRegistration kClampedRegistered(ClampedSwigluKernel());

void EnqueueActivation(CudaDriver& driver, Activation activation, ConstMatrixView x, bool gated,
                       MatrixView out) {
  if (out.empty()) return;
  LaunchShape shape = OneBlockPerRow(out);
  shape.grid[1] = NumBlocks(out.cols(), kActivationCols);
  const auto width = static_cast<int>(out.cols());
  Enqueue(driver, ActivationKernel(IsVec4(x) && IsVec4(out), gated), shape,
          {activation, RowsOf(x), gated ? width : 0, width, OutRowsOf(out)});
}

void EnqueueBf16Activation(CudaDriver& driver, Activation activation, ConstMatrixView gate_up,
                           MatrixView out) {
  if (out.empty()) return;
  const int64_t width = out.cols();
  BH_CHECK(gate_up.cols() == 2 * width && IsVec8(gate_up.Cols(0, width)) && IsVec4(out) &&
           (out.dtype() != DType::kBF16 || IsVec8(out)));
  LaunchShape shape = OneBlockPerRow(out);
  shape.grid[1] = NumBlocks(width, kBf16ActivationCols);
  Enqueue(driver, Bf16ActivationKernel(), shape,
          {activation, reinterpret_cast<const uint16_t*>(gate_up.data()), gate_up.row_stride(),
           static_cast<int>(width), OutRowsOf(out)});
}

}  // namespace
}  // namespace cuda

void CudaBackend::GatedActivation(Activation activation, ConstMatrixView gate_up, MatrixView out) {
  if (gate_up.dtype() == DType::kBF16) {
    return cuda::EnqueueBf16Activation(driver_, activation, gate_up, out);
  }
  cuda::EnqueueActivation(driver_, activation, gate_up, true, out);
}

void CudaBackend::ClampedSwiglu(float alpha, float limit, ConstMatrixView gate_up, MatrixView out) {
  if (out.empty()) return;
  LaunchShape shape = cuda::OneBlockPerRow(out);
  shape.grid[1] = cuda::NumBlocks(out.cols(), cuda::kActivationCols);
  Enqueue(
      driver_, cuda::ClampedSwigluKernel(), shape,
      {alpha, limit, cuda::RowsOf(gate_up), static_cast<int>(out.cols()), cuda::OutRowsOf(out)});
}

void CudaBackend::Activate(Activation activation, ConstMatrixView x, MatrixView out) {
  cuda::EnqueueActivation(driver_, activation, x, false, out);
}

}  // namespace bulkhead
