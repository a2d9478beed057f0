// RopeLatents: rotates the rotary parts of the queries and of the token's own latent.
#include "base/check.h"
#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct RopeLatentsParameters {
  const int32_t* position = nullptr;  // [T]
  ConstRows rope;
  int rotary_dim = 0;
  bool interleaved = false;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int q_dim = 0;  // of a head of q
  ConstRows q;
  Rows qkv;
};

namespace {

// One head of one token per warp; a KV head's part is rotated in place.
BH_KERNEL(kHeadWarps* kWarp) RopeLatents(RopeLatentsParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head >= p.num_heads + p.num_kv_heads) return;
  const int token = int(blockIdx.x);
  float* const out = p.qkv.data + token * p.qkv.stride +
                     static_cast<int64_t>(head + 1) * p.head_dim - p.rotary_dim;
  const float* const in =
      head < p.num_heads
          ? p.q.data + token * p.q.stride + static_cast<int64_t>(head + 1) * p.q_dim - p.rotary_dim
          : out;
  const int half = p.rotary_dim / 2;
  const float* const cosines = p.rope.data + p.position[token] * p.rope.stride;
  const float* const sines = cosines + half;
  for (int i = LaneIndex(); i < half; i += kWarp) {
    const int at = p.interleaved ? 2 * i : i;
    const int other = p.interleaved ? 2 * i + 1 : half + i;
    const float first = in[at];
    const float second = in[other];
    out[at] = first * cosines[i] - second * sines[i];
    out[other] = second * cosines[i] + first * sines[i];
  }
}

CudaKernelOf<RopeLatentsParameters> RopeLatentsKernel() {
  return KernelOf<kHeadWarps * kWarp>("rope_latents", RopeLatents);
}

const KernelRegistration kRegistered(RopeLatentsKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::RopeLatents(const StepIndex& index, const HeadLayout& heads, const Rotary& rotary,
                              ConstMatrixView q, MatrixView qkv) {
  if (qkv.empty() || heads.num_heads == 0) return;
  const int64_t q_dim = q.cols() / heads.num_heads;
  const int64_t rotary_dim = rotary.table.cols();
  BH_CHECK(q.rows() == qkv.rows() && q.cols() == q_dim * heads.num_heads);
  BH_CHECK(rotary_dim <= q_dim && rotary_dim <= heads.head_dim);
  cuda::RopeLatentsParameters p;
  p.position = index.position;
  if (!rotary.table.empty()) p.rope = cuda::RowsOf(rotary.table);
  p.rotary_dim = static_cast<int>(rotary_dim);
  p.interleaved = rotary.interleaved;
  p.num_heads = heads.num_heads;
  p.num_kv_heads = heads.num_kv_heads;
  p.head_dim = heads.head_dim;
  p.q_dim = static_cast<int>(q_dim);
  p.q = cuda::RowsOf(q);
  p.qkv = cuda::RowsOf(qkv);
  Enqueue(driver_, cuda::RopeLatentsKernel(),
          cuda::OneWarpPerHead(index.num_tokens, heads.num_heads + heads.num_kv_heads), p);
}

}  // namespace bulkhead
