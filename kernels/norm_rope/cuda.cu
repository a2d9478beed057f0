#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct NormRopeParameters {
  const int32_t* position = nullptr;  // [T]
  const float* q_norm = nullptr;      // [d], of all heads [h d], or null, and for k
  const float* k_norm = nullptr;
  float epsilon = 0;
  bool norm_after_rotary = false;
  bool norm_without_weight = false;
  bool norms_values = false;
  ConstRows squares;  // of all heads, [T, 2]; data null: norms are of each head
  float q_size = 0;
  float k_size = 0;
  ConstRows rope;
  int rotary_dim = 0;
  int pair_distance = 0;  // between the columns of a pair; 1: those of pair i are 2i and 2i + 1
  ConstRows q_scale;      // data null: none
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  Rows qkv;
};

namespace {

BH_DEVICE float MeanSquare(const NormRopeParameters& p, const float* x) {
  float squares = 0.0F;
  for (int i = LaneIndex(); i < p.head_dim; i += kWarp) squares = fmaf(x[i], x[i], squares);
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    squares += __shfl_xor_sync(kFullMask, squares, mask);
  return squares / static_cast<float>(p.head_dim);
}

// Norms of the head that the warp has: a lane reads and writes columns of its own.
BH_DEVICE void NormValues(const NormRopeParameters& p, float* x) {
  const float scale = 1.0F / sqrtf(MeanSquare(p, x) + p.epsilon);
  for (int i = LaneIndex(); i < p.head_dim; i += kWarp) x[i] *= scale;
}
BH_DEVICE void NormHead(const NormRopeParameters& p, int head, float* x) {
  const bool is_q = head < p.num_heads;
  const float* norm = is_q ? p.q_norm : p.k_norm;
  if (norm == nullptr && !p.norm_without_weight) return;
  if (p.squares.data != nullptr) norm += (is_q ? head : head - p.num_heads) * p.head_dim;
  float mean = 0.0F;
  if (p.squares.data == nullptr) {
    mean = MeanSquare(p, x);
  } else {
    const float* const squares = p.squares.data + int(blockIdx.x) * p.squares.stride;
    mean = is_q ? squares[0] / p.q_size : squares[1] / p.k_size;
  }
  const float scale = 1.0F / sqrtf(mean + p.epsilon);
  for (int i = LaneIndex(); i < p.head_dim; i += kWarp) {
    x[i] = norm == nullptr ? x[i] * scale : x[i] * scale * norm[i];
  }
  __syncwarp();  // the rotation reads columns of other lanes
}

// A warp takes one head of one token.
BH_KERNEL(kHeadWarps* kWarp) NormRope(NormRopeParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  const int rotated = p.num_heads + p.num_kv_heads;
  if (head >= rotated + (p.norms_values ? p.num_kv_heads : 0)) return;
  const int half = p.rotary_dim / 2;
  float* const x =
      p.qkv.data + int(blockIdx.x) * p.qkv.stride + static_cast<int64_t>(head) * p.head_dim;
  if (head >= rotated) return NormValues(p, x);
  const int position = p.position[int(blockIdx.x)];
  if (!p.norm_after_rotary) NormHead(p, head, x);
  const float* const cosines = p.rope.data + position * p.rope.stride;
  const float* const sines = cosines + half;
  for (int i = LaneIndex(); i < half; i += kWarp) {
    const int at = p.pair_distance == 1 ? 2 * i : i;
    const int other = at + p.pair_distance;
    const float first = x[at];
    const float second = x[other];
    x[at] = first * cosines[i] - second * sines[i];
    x[other] = second * cosines[i] + first * sines[i];
  }
  __syncwarp();
  if (p.norm_after_rotary) NormHead(p, head, x);
  if (p.q_scale.data == nullptr || head >= p.num_heads) return;
  const float scale = p.q_scale.data[position * p.q_scale.stride];
  for (int i = LaneIndex(); i < p.head_dim; i += kWarp) x[i] *= scale;
}

CudaKernelOf<NormRopeParameters> NormRopeKernel() {
  return KernelOf<kHeadWarps * kWarp>("norm_rope", NormRope);
}

const KernelRegistration kRegistered(NormRopeKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::NormRope(const StepIndex& index, const HeadLayout& heads, const HeadNorms& norms,
                           const Rotary& rotary, MatrixView qkv) {
  if (qkv.empty()) return;
  cuda::NormRopeParameters p;
  p.position = index.position;
  p.q_norm = cuda::VectorOf(norms.q);
  p.k_norm = cuda::VectorOf(norms.k);
  p.epsilon = norms.epsilon;
  p.norm_after_rotary = norms.after_rotary;
  p.norm_without_weight = norms.without_weight;
  p.norms_values = norms.values;
  if (!norms.squares.empty()) p.squares = cuda::RowsOf(norms.squares);
  p.q_size = static_cast<float>(norms.q_size);
  p.k_size = static_cast<float>(norms.k_size);
  if (!rotary.table.empty()) p.rope = cuda::RowsOf(rotary.table);
  p.rotary_dim = static_cast<int>(rotary.table.cols());
  p.pair_distance = rotary.interleaved ? 1
                    : rotary.of_halves ? heads.head_dim / 2
                                       : p.rotary_dim / 2;
  if (!rotary.q_scale.empty()) p.q_scale = cuda::RowsOf(rotary.q_scale);
  p.num_heads = heads.num_heads;
  p.num_kv_heads = heads.num_kv_heads;
  p.head_dim = heads.head_dim;
  p.qkv = cuda::RowsOf(qkv);
  Enqueue(driver_, cuda::NormRopeKernel(),
          cuda::OneWarpPerHead(index.num_tokens,
                               heads.num_heads + (norms.values ? 2 : 1) * heads.num_kv_heads),
          p);
}

}  // namespace bulkhead
