#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct SumHeadSquaresParameters {
  ConstRows qkv;
  int q_end = 0;  // columns
  int k_begin = 0;
  int k_end = 0;
  Rows squares;
};

namespace {

// One warp for q or k of one token.
BH_KERNEL(kHeadWarps* kWarp) SumHeadSquares(SumHeadSquaresParameters p) {
  GridDependencySynchronize();
  const int part = WarpIndex();
  if (part >= 2) return;
  const float* const x = p.qkv.data + int(blockIdx.x) * p.qkv.stride;
  float squares = 0.0F;
  const int begin = part == 0 ? 0 : p.k_begin;
  const int end = part == 0 ? p.q_end : p.k_end;
  for (int i = begin + LaneIndex(); i < end; i += kWarp) {
    squares = fmaf(x[i], x[i], squares);
  }
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    squares += __shfl_xor_sync(kFullMask, squares, mask);
  if (LaneIndex() == 0) p.squares.data[int(blockIdx.x) * p.squares.stride + part] = squares;
}

CudaKernelOf<SumHeadSquaresParameters> SumHeadSquaresKernel() {
  return KernelOf<kHeadWarps * kWarp>("sum_head_squares", SumHeadSquares);
}

const KernelRegistration kRegistered(SumHeadSquaresKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SumHeadSquares(const HeadLayout& heads, const HeadLeaves& leaves,
                                 ConstMatrixView qkv, MatrixView squares) {
  if (squares.empty()) return;
  const auto column = [&](int64_t head) { return static_cast<int>(head * heads.head_dim); };
  cuda::SumHeadSquaresParameters p;
  p.qkv = cuda::RowsOf(qkv);
  p.q_end = column(leaves.q.back());
  p.k_begin = column(heads.num_heads + leaves.k.front());
  p.k_end = column(heads.num_heads + leaves.k.back());
  p.squares = cuda::RowsOf(squares);
  Enqueue(driver_, cuda::SumHeadSquaresKernel(),
          cuda::OneWarpPerHead(static_cast<int>(squares.rows()), 2), p);
}

}  // namespace bulkhead
