#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct NormRopeParameters {
  const int32_t* position = nullptr;  // [T]
  const float* q_norm = nullptr;      // [d] or null, and for k
  const float* k_norm = nullptr;
  float epsilon = 0;
  ConstRows rope;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  Rows qkv;
};

namespace {

// A warp takes one head of one token: its norm if there is one, then the rotation of its halves.
BH_KERNEL(kHeadWarps* kWarp) NormRope(NormRopeParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head >= p.num_heads + p.num_kv_heads) return;
  const int half = p.head_dim / 2;
  float* const x =
      p.qkv.data + int(blockIdx.x) * p.qkv.stride + static_cast<int64_t>(head) * p.head_dim;
  const float* const norm = head < p.num_heads ? p.q_norm : p.k_norm;
  float scale = 1.0F;
  if (norm != nullptr) {
    float squares = 0.0F;
    for (int i = LaneIndex(); i < p.head_dim; i += kWarp) squares = fmaf(x[i], x[i], squares);
    BH_UNROLL
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      squares += __shfl_xor_sync(kFullMask, squares, mask);
    scale = 1.0F / sqrtf(squares / static_cast<float>(p.head_dim) + p.epsilon);
  }
  const float* const cosines = p.rope.data + p.position[int(blockIdx.x)] * p.rope.stride;
  const float* const sines = cosines + half;
  for (int i = LaneIndex(); i < half; i += kWarp) {
    float first = x[i];
    float second = x[half + i];
    if (norm != nullptr) {
      first = first * scale * norm[i];
      second = second * scale * norm[half + i];
    }
    x[i] = first * cosines[i] - second * sines[i];
    x[half + i] = second * cosines[i] + first * sines[i];
  }
}

CudaKernelOf<NormRopeParameters> NormRopeKernel() { return KernelOf("norm_rope", NormRope); }

const KernelRegistration kRegistered(NormRopeKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                           ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                           MatrixView qkv) {
  if (qkv.empty()) return;
  const int all = heads.num_heads + heads.num_kv_heads;
  Enqueue(
      driver_, cuda::NormRopeKernel(), cuda::OneWarpPerHead(index.num_tokens, all),
      {index.position, cuda::VectorOf(q_norm), cuda::VectorOf(k_norm), epsilon, cuda::RowsOf(rope),
       heads.num_heads, heads.num_kv_heads, heads.head_dim, cuda::RowsOf(qkv)});
}

}  // namespace bulkhead
