#include "base/check.h"
#include "intrinsics.h"
#include "kernels/append_kv/append_kv.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct NormRopeParameters {
  const int32_t* position = nullptr;  // [T]
  const float* q_norm = nullptr;      // [d], over all heads [h d], or null; and for k
  const float* k_norm = nullptr;
  float epsilon = 0;
  bool norm_after_rotary = false;
  bool norm_without_weight = false;
  bool norms_values = false;
  ConstRows squares;  // over all heads, [T, 2]; data null: norms are per head
  float q_size = 0;
  float k_size = 0;
  ConstRows rope;
  int rotary_dim = 0;
  int pair_distance = 0;  // between the columns of a pair; 1: pair i is 2i and 2i + 1
  ConstRows q_scale;      // data null: none
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  Rows qkv;
};

struct NormRopeAppendParameters {
  NormRopeParameters norm_rope;
  AppendKvParameters append;
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

// Norms the warp's head: a lane reads and writes only its own columns.
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

BH_DEVICE float* HeadOf(const NormRopeParameters& p, int head) {
  return p.qkv.data + int(blockIdx.x) * p.qkv.stride + static_cast<int64_t>(head) * p.head_dim;
}

// Head `head` of token blockIdx.x, by one warp.
BH_DEVICE void NormRopeHead(const NormRopeParameters& p, int head) {
  const int half = p.rotary_dim / 2;
  float* const x = HeadOf(p, head);
  if (head >= p.num_heads + p.num_kv_heads) return NormValues(p, x);
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

BH_DEVICE int NumVisitedHeads(const NormRopeParameters& p) {
  return p.num_heads + (p.norms_values ? 2 : 1) * p.num_kv_heads;
}

BH_KERNEL(kHeadWarps* kWarp) NormRope(NormRopeParameters p) {
  GridDependencySynchronize();
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head < NumVisitedHeads(p)) NormRopeHead(p, head);
}

// A warp that has a key or a value also writes it into the cache.
template <KvFormat kFormat>
BH_KERNEL(kHeadWarps* kWarp)
NormRopeAppendKv(NormRopeAppendParameters p) {
  GridDependencySynchronize();
  const int num_heads = p.norm_rope.num_heads;
  const int head = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (head >= num_heads + 2 * p.norm_rope.num_kv_heads) return;
  if (head < NumVisitedHeads(p.norm_rope)) NormRopeHead(p.norm_rope, head);
  if (head < num_heads) return;
  __syncwarp();
  AppendHead<kFormat>(p.append, head - num_heads, HeadOf(p.norm_rope, head));
}

CudaKernelOf<NormRopeAppendParameters> NormRopeAppendKernel(KvFormat format) {
  constexpr int kThreads = kHeadWarps * kWarp;
  switch (format) {
    case KvFormat::kF16:
      return KernelOf<kThreads>("norm_rope_append f16", NormRopeAppendKv<KvFormat::kF16>);
    case KvFormat::kInt8:
      return KernelOf<kThreads>("norm_rope_append int8", NormRopeAppendKv<KvFormat::kInt8>);
    case KvFormat::kInt4:
      return KernelOf<kThreads>("norm_rope_append int4", NormRopeAppendKv<KvFormat::kInt4>);
    case KvFormat::kFP8:
      return KernelOf<kThreads>("norm_rope_append fp8", NormRopeAppendKv<KvFormat::kFP8>);
    default:
      return KernelOf<kThreads>("norm_rope_append bf16", NormRopeAppendKv<KvFormat::kBF16>);
  }
}

CudaKernelOf<NormRopeParameters> NormRopeKernel() {
  return KernelOf<kHeadWarps * kWarp>("norm_rope", NormRope);
}

const KernelRegistration kRegistered(NormRopeKernel(), NormRopeAppendKernel(KvFormat::kBF16),
                                     NormRopeAppendKernel(KvFormat::kF16),
                                     NormRopeAppendKernel(KvFormat::kInt8),
                                     NormRopeAppendKernel(KvFormat::kInt4),
                                     NormRopeAppendKernel(KvFormat::kFP8));

NormRopeParameters ParametersOf(const StepIndex& index, const HeadLayout& heads,
                                const HeadNorms& norms, const Rotary& rotary, MatrixView qkv) {
  NormRopeParameters p;
  p.position = index.position;
  p.q_norm = VectorOf(norms.q);
  p.k_norm = VectorOf(norms.k);
  p.epsilon = norms.epsilon;
  p.norm_after_rotary = norms.after_rotary;
  p.norm_without_weight = norms.without_weight;
  p.norms_values = norms.values;
  if (!norms.squares.empty()) p.squares = RowsOf(norms.squares);
  p.q_size = static_cast<float>(norms.q_size);
  p.k_size = static_cast<float>(norms.k_size);
  if (!rotary.table.empty()) p.rope = RowsOf(rotary.table);
  p.rotary_dim = static_cast<int>(rotary.table.cols());
  p.pair_distance = rotary.interleaved ? 1
                    : rotary.of_halves ? heads.head_dim / 2
                                       : p.rotary_dim / 2;
  if (!rotary.q_scale.empty()) p.q_scale = RowsOf(rotary.q_scale);
  p.num_heads = heads.num_heads;
  p.num_kv_heads = heads.num_kv_heads;
  p.head_dim = heads.head_dim;
  p.qkv = RowsOf(qkv);
  return p;
}

}  // namespace
}  // namespace cuda

void CudaBackend::NormRope(const StepIndex& index, const HeadLayout& heads, const HeadNorms& norms,
                           const Rotary& rotary, MatrixView qkv) {
  if (qkv.empty()) return;
  Enqueue(driver_, cuda::NormRopeKernel(),
          cuda::OneWarpPerHead(index.num_tokens,
                               heads.num_heads + (norms.values ? 2 : 1) * heads.num_kv_heads),
          cuda::ParametersOf(index, heads, norms, rotary, qkv));
}

void CudaBackend::NormRopeAppendKv(const StepIndex& index, const HeadLayout& heads,
                                   const HeadNorms& norms, const Rotary& rotary, MatrixView qkv,
                                   const KvLayerView& kv) {
  if (qkv.empty()) return;
  BH_CHECK(!kv.geometry.latent);
  Enqueue(driver_, cuda::NormRopeAppendKernel(kv.geometry.format),
          cuda::OneWarpPerHead(index.num_tokens, heads.num_heads + 2 * heads.num_kv_heads),
          {cuda::ParametersOf(index, heads, norms, rotary, qkv),
           {cuda::CacheOf(index, kv), cuda::RowsOf(ConstMatrixView(qkv)), heads.num_heads,
            heads.num_kv_heads, kv.geometry.num_parts()}});
}

}  // namespace bulkhead
