#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/gated_delta/delta_block.cuh"

namespace bulkhead {
namespace cuda {
namespace {

template <int kPiece>
BH_KERNEL_SHARING(kDeltaWarps* kWarp, 2)
GatedDelta(GatedDeltaParameters p) {
  GridDependencySynchronize();
  const int seq = int(blockIdx.x);
  DeltaBlock<kPiece> block(p, int(blockIdx.y), int(blockIdx.z) * kDeltaColumns);
  block.row = p.seq_begin[seq];
  if (p.seq_slot[seq] >= p.num_slots) {
    const int column = block.first_column + int(threadIdx.x);
    if (int(threadIdx.x) < kDeltaColumns && column < p.value_dim) {
      p.out.data[block.row * p.out.stride + block.head * p.value_dim + column] = 0.0F;
    }
    return;
  }
  const int end = p.seq_begin[seq + 1];
  const int position = p.position[block.row];
  block.first = position % kStateBlock;
  block.has_state = position >= kStateBlock;
  block.LoadState(p.seq_slot[seq]);
  __syncthreads();
  while (block.row < end) {
    const int left = end - block.row;
    const int room = kStateBlock - block.first;
    const int most = left < room ? left : room;
    block.count = most < kPiece ? most : kPiece;
    block.Begin();
    CpAsyncWait<0>();
    __syncthreads();
    block.Multiply();
    __syncthreads();
    block.Solve();
    __syncthreads();
    block.row += block.count;
    block.first += block.count;
    if (block.first < kStateBlock) continue;
    block.Advance();
  }
  // Begin and slot are read again, to save registers in the loop.
  const int from = block.first - (end - p.seq_begin[seq]);  // negative: began in an earlier block
  block.StoreState(p.seq_slot[seq], from < 0, from < 0 ? 0 : from);
}

// Stores what the next step's blocks read of this one's open block: normed keys of a key head, or
// sums of decay of a value head.
BH_DEVICE void Keep(const GatedDeltaParameters& p, int seq, int head) {
  const int slot = p.seq_slot[seq];
  if (slot >= p.num_slots) return;
  const int begin = p.seq_begin[seq];
  const int end = p.seq_begin[seq + 1];
  const int open = (p.position[end - 1] + 1) % kStateBlock;
  const int count = open < end - begin ? open : end - begin;
  const int first = open - count;
  const int row = end - count;
  if (head < p.num_key_heads) {
    float* const keys = p.keys + slot * p.slot_floats +
                        (static_cast<int64_t>(head) * kStateBlock + first) * p.key_dim;
    const float* const k = p.qkv.data + row * p.qkv.stride + (p.num_key_heads + head) * p.key_dim;
    for (int t = WarpIndex(); t < count; t += kFinishWarps) {
      NormHead(k + t * p.qkv.stride, p.key_dim, 1.0F, keys + t * p.key_dim);
    }
    return;
  }
  head -= p.num_key_heads;
  auto* const terms = reinterpret_cast<double*>(SharedMemory());
  if (int(threadIdx.x) < count)
    terms[int(threadIdx.x)] = DecayTerm(p, row + int(threadIdx.x), head);
  __syncthreads();
  if (threadIdx.x != 0) return;
  double* const decays = p.decays + slot * p.slot_floats / 2 + head * kStateBlock;
  double sum = first == 0 ? 0.0 : decays[first - 1];
  for (int t = 0; t < count; ++t) {
    sum = sum + terms[t];
    decays[first + t] = sum;
  }
}

// First the blocks that keep, then blocks that norm a token's heads, one warp each.
BH_KERNEL(kFinishWarps* kWarp) FinishGatedDelta(GatedDeltaParameters p) {
  GridDependencySynchronize();
  const int heads = p.num_key_heads + p.num_value_heads;
  int block = int(blockIdx.x);
  if (block < p.num_seqs * heads) return Keep(p, block / heads, block % heads);
  block -= p.num_seqs * heads;
  const int row_blocks = (p.num_value_heads + kFinishWarps - 1) / kFinishWarps;
  const int head = block % row_blocks * kFinishWarps + WarpIndex();
  if (head >= p.num_value_heads) return;
  float* const x = p.out.data + block / row_blocks * p.out.stride + head * p.value_dim;
  float squares = 0.0F;
  for (int i = LaneIndex(); i < p.value_dim; i += kWarp) squares = fmaf(x[i], x[i], squares);
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    squares += __shfl_xor_sync(kFullMask, squares, mask);
  }
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.value_dim) + p.epsilon);
  for (int i = LaneIndex(); i < p.value_dim; i += kWarp) x[i] = x[i] * scale * p.norm[i];
}

CudaKernelOf<GatedDeltaParameters> GatedDeltaKernel(bool of_tokens) {
  return of_tokens ? KernelOf<kDeltaWarps * kWarp>("gated_delta of a token", GatedDelta<1>)
                   : KernelOf<kDeltaWarps * kWarp>("gated_delta", GatedDelta<kDeltaPiece>);
}
CudaKernelOf<GatedDeltaParameters> FinishGatedDeltaKernel() {
  return KernelOf<kFinishWarps * kWarp>("gated_delta: norms", FinishGatedDelta);
}

const KernelRegistration kRegistered(GatedDeltaKernel(true), GatedDeltaKernel(false),
                                     FinishGatedDeltaKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::GatedDelta(const StepIndex& index, const GatedDeltaWeights& weights,
                             ConstMatrixView qkv, ConstMatrixView ba, const StateLayerView& state,
                             MatrixView out) {
  const StateGeometry& geometry = state.geometry;
  const DeltaHeads& heads = geometry.heads;
  if (index.num_tokens == 0 || heads.num_value_heads == 0) return;
  BH_CHECK(qkv.cols() == heads.qkv_dim() && out.cols() == heads.out_dim());
  BH_CHECK(ba.cols() == 2 * heads.num_value_heads);
  BH_CHECK(heads.key_dim % 4 == 0 && heads.key_dim <= cuda::kMaxDeltaKeyDim);
  BH_CHECK(heads.num_value_heads <= cuda::kMaxDeltaValueHeads);
  BH_CHECK(heads.value_dim % 4 == 0 && cuda::IsVec4(qkv) && cuda::IsVec4(out));
  cuda::GatedDeltaParameters p;
  p.seq_begin = index.seq_begin;
  p.seq_slot = index.seq_slot;
  p.position = index.position;
  p.num_seqs = index.num_seqs;
  p.qkv = cuda::RowsOf(qkv);
  p.ba = cuda::RowsOf(ba);
  p.a_log = weights.a_log.F32();
  p.dt_bias = weights.dt_bias.F32();
  p.norm = weights.norm.F32();
  p.epsilon = weights.epsilon;
  p.decays = state.Decays(0, 0);
  p.matrices = state.Matrix(0, 0);
  p.corrected = state.Corrected(0, 0);
  p.keys = state.Keys(0, 0);
  p.slot_floats = geometry.SlotBytes() / static_cast<int64_t>(sizeof(float));
  p.num_slots = geometry.num_slots;
  p.num_key_heads = heads.num_key_heads;
  p.num_value_heads = heads.num_value_heads;
  p.key_dim = heads.key_dim;
  p.value_dim = heads.value_dim;
  p.padded_value_dim = static_cast<int>(geometry.padded_value_dim());
  p.out = cuda::RowsOf(out);
  for (int i = 0; i < heads.num_value_heads; ++i) {
    p.key_head_of[i] = static_cast<uint16_t>(heads.value_to_key[i]);
  }
  const bool of_tokens = index.num_tokens == index.num_seqs;
  const cuda::DeltaShared shared{heads.key_dim + cuda::kKeyPad, of_tokens ? 1 : cuda::kDeltaPiece};
  Enqueue(driver_, cuda::GatedDeltaKernel(of_tokens),
          {.grid = {index.num_seqs, heads.num_value_heads,
                    cuda::NumBlocks(heads.value_dim, cuda::kDeltaColumns)},
           .block = {cuda::kDeltaWarps * cuda::kWarp, 1, 1},
           .shared_bytes = shared.doubles() * 8 + shared.floats(heads.key_dim) * 4},
          p);
  const int kept = index.num_seqs * (heads.num_key_heads + heads.num_value_heads);
  const int normed = index.num_tokens * cuda::NumBlocks(heads.num_value_heads, cuda::kFinishWarps);
  Enqueue(driver_, cuda::FinishGatedDeltaKernel(),
          {.grid = {kept + normed, 1, 1},
           .block = {cuda::kFinishWarps * cuda::kWarp, 1, 1},
           .shared_bytes = kStateBlock * 8},
          p);
}

}  // namespace bulkhead
