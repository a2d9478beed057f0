#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead {
namespace cuda {

// grid {T, f / kSwiGluCols}; `fours`: rows a multiple of 4 wide and apart, 16-byte aligned
inline constexpr int kSwiGluCols = 4 * kRowThreads;
struct SwiGluParameters {
  ConstRows gate_up;
  int width = 0;  // f
  OutRows out;
};

namespace {

BH_DEVICE float Gated(float gate, float up) { return gate / (1.0F + expf(-gate)) * up; }

// A block takes kSwiGluCols columns of a row; what a thread reads is asked for before any is used.
template <bool kFours>
BH_KERNEL(kRowThreads)
SwiGlu(SwiGluParameters p) {
  GridDependencySynchronize();
  const float* const gate = p.gate_up.data + int(blockIdx.x) * p.gate_up.stride;
  const float* const up = gate + p.width;
  const int64_t row = int(blockIdx.x) * p.out.stride;
  if constexpr (kFours) {
    const int col = int(blockIdx.y) * kSwiGluCols + int(threadIdx.x) * 4;
    if (col >= p.width) return;
    Floats4 out = LoadFour(gate + col);
    const Floats4 ups = LoadFour(up + col);
    BH_UNROLL
    for (int i = 0; i < 4; ++i) out.v[i] = Gated(out.v[i], ups.v[i]);
    StoreFourOut(p.out, row + col, out);
  } else {
    constexpr int kCols = kSwiGluCols / kRowThreads;
    const int first = int(blockIdx.y) * kSwiGluCols + int(threadIdx.x);
    float gates[kCols];
    float ups[kCols];
    BH_UNROLL
    for (int i = 0; i < kCols; ++i) {
      const int col = first + i * kRowThreads;
      gates[i] = col < p.width ? gate[col] : 0.0F;
      ups[i] = col < p.width ? up[col] : 0.0F;
    }
    BH_UNROLL
    for (int i = 0; i < kCols; ++i) {
      const int col = first + i * kRowThreads;
      if (col < p.width) StoreOut(p.out, row + col, Gated(gates[i], ups[i]));
    }
  }
}

CudaKernelOf<SwiGluParameters> SwiGluKernel(bool fours) {
  return fours ? KernelOf("swiglu, fours", SwiGlu<true>) : KernelOf("swiglu", SwiGlu<false>);
}

const KernelRegistration kRegistered(SwiGluKernel(false), SwiGluKernel(true));

}  // namespace
}  // namespace cuda

void CudaBackend::SwiGlu(ConstMatrixView gate_up, MatrixView out) {
  if (out.empty()) return;
  LaunchShape shape = cuda::OneBlockPerRow(out);
  shape.grid[1] = cuda::NumBlocks(out.cols(), cuda::kSwiGluCols);
  Enqueue(driver_, cuda::SwiGluKernel(cuda::InFours(gate_up) && cuda::InFours(out)), shape,
          {cuda::RowsOf(gate_up), static_cast<int>(out.cols()), cuda::OutRowsOf(out)});
}

}  // namespace bulkhead
