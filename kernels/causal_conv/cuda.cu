#include "intrinsics.h"
#include "kernels/causal_conv/op.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct CausalConvParameters {
  const int32_t* seq_begin = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* position = nullptr;
  const float* weight = nullptr;  // [channels, taps]
  int taps = 0;
  int channels = 0;
  float* inputs = nullptr;  // of slot 0
  int input_rows = 0;
  int64_t slot_floats = 0;
  int num_slots = 0;
  Rows x;
};

// A ConvolveRows block has kWarp channels of one sequence, and kConvRows tokens at a time, a warp
// kConvWarpRows of them.
inline constexpr int kConvWarps = 8;
inline constexpr int kConvWarpRows = 8;
inline constexpr int kConvRows = kConvWarps * kConvWarpRows;

namespace {

// For sequences with one token each: one thread per channel.
BH_KERNEL(kRowThreads) ConvolveToken(CausalConvParameters p) {
  GridDependencySynchronize();
  const int channel = int(blockIdx.y) * kRowThreads + int(threadIdx.x);
  const int slot = p.seq_slot[int(blockIdx.x)];
  if (channel >= p.channels || slot >= p.num_slots) return;
  const int row = p.seq_begin[int(blockIdx.x)];
  const int position = p.position[row];
  const int kept = p.taps - 1;
  const float* const weight = p.weight + static_cast<int64_t>(channel) * p.taps;
  float* const inputs = p.inputs + slot * p.slot_floats + channel;
  float* const x = p.x.data + row * p.x.stride + channel;
  const float own = *x;
  float sum = 0.0F;
  for (int tap = 0; tap < kept; ++tap) {
    const int at = position - kept + tap;
    if (at < 0) continue;
    sum = fmaf(weight[tap], inputs[static_cast<int64_t>(at % p.input_rows) * p.channels], sum);
  }
  inputs[static_cast<int64_t>(position % p.input_rows) * p.channels] = own;
  *x = fmaf(weight[kept], own, sum);
}

// For any sequences. Shared memory has a chunk's inputs after those of its first taps.
BH_KERNEL(kConvWarps* kWarp) ConvolveRows(CausalConvParameters p) {
  GridDependencySynchronize();
  const int channel = int(blockIdx.y) * kWarp + LaneIndex();
  const bool present = channel < p.channels;
  const int slot = p.seq_slot[int(blockIdx.x)];
  if (slot >= p.num_slots) return;
  const int begin = p.seq_begin[int(blockIdx.x)];
  const int end = p.seq_begin[int(blockIdx.x) + 1];
  const int position = p.position[begin];
  const int kept = p.taps - 1;
  float* const inputs = p.inputs + slot * p.slot_floats + channel;
  float* const column = reinterpret_cast<float*>(SharedMemory()) + LaneIndex();  // stride kWarp
  float* const weights = column + (kept + kConvRows) * kWarp;
  for (int tap = WarpIndex(); tap < p.taps; tap += kConvWarps) {
    weights[tap * kWarp] = present ? p.weight[static_cast<int64_t>(channel) * p.taps + tap] : 0.0F;
  }
  for (int row = WarpIndex(); row < kept; row += kConvWarps) {
    const int at = position - kept + row;
    column[row * kWarp] =
        present && at >= 0 ? inputs[static_cast<int64_t>(at % p.input_rows) * p.channels] : 0.0F;
  }
  const int first = WarpIndex() * kConvWarpRows;
  float own[kConvWarpRows];
  const auto load = [&](int chunk) {
    BH_UNROLL
    for (int i = 0; i < kConvWarpRows; ++i) {
      const int row = chunk + first + i;
      own[i] = present && row < end ? p.x.data[row * p.x.stride + channel] : 0.0F;
    }
  };
  load(begin);
  for (int chunk = begin;; chunk += kConvRows) {
    BH_UNROLL
    for (int i = 0; i < kConvWarpRows; ++i) column[(kept + first + i) * kWarp] = own[i];
    __syncthreads();
    load(chunk + kConvRows);  // no other block writes these
    for (int i = 0; i < kConvWarpRows; ++i) {
      const int row = chunk + first + i;
      if (!present || row >= end) break;
      float sum = 0.0F;
      for (int tap = 0; tap < p.taps; ++tap) {
        sum = fmaf(weights[tap * kWarp], column[(first + i + tap) * kWarp], sum);
      }
      p.x.data[row * p.x.stride + channel] = sum;
    }
    if (chunk + kConvRows >= end) {
      const int count = end - chunk;
      const int rows = kept + count < p.input_rows ? kept + count : p.input_rows;
      const int next = position + end - begin;
      for (int row = WarpIndex(); row < rows; row += kConvWarps) {
        const int at = next - rows + row;
        if (!present || at < 0) continue;
        inputs[static_cast<int64_t>(at % p.input_rows) * p.channels] =
            column[(kept + count - rows + row) * kWarp];
      }
      return;
    }
    __syncthreads();
    for (int row = WarpIndex(); row < kept; row += kConvWarps) {
      column[row * kWarp] = column[(kConvRows + row) * kWarp];
    }
    __syncthreads();
  }
}

CudaKernelOf<CausalConvParameters> ConvolveKernel(bool of_tokens) {
  return of_tokens ? KernelOf<kRowThreads>("causal_conv of a token", ConvolveToken)
                   : KernelOf<kConvWarps * kWarp>("causal_conv", ConvolveRows);
}

const KernelRegistration kRegistered(ConvolveKernel(true), ConvolveKernel(false));

}  // namespace
}  // namespace cuda

void CudaBackend::CausalConv(const StepIndex& index, ConstMatrixView weight,
                             const StateLayerView& state, MatrixView x) {
  if (x.empty()) return;
  const StateGeometry& geometry = state.geometry;
  const int taps = geometry.conv_taps;
  BH_CHECK(x.cols() == geometry.heads.qkv_dim() && weight.cols() == x.cols() * taps);
  BH_CHECK(taps >= 2 && taps <= kMaxConvTaps);
  cuda::CausalConvParameters p;
  p.seq_begin = index.seq_begin;
  p.seq_slot = index.seq_slot;
  p.position = index.position;
  p.weight = weight.F32();
  p.taps = taps;
  p.channels = static_cast<int>(x.cols());
  p.inputs = state.Inputs(0);
  p.input_rows = geometry.input_rows();
  p.slot_floats = geometry.SlotBytes() / static_cast<int64_t>(sizeof(float));
  p.num_slots = geometry.num_slots;
  p.x = cuda::RowsOf(x);
  const bool of_tokens = index.num_tokens == index.num_seqs;
  LaunchShape shape{
      .grid = {index.num_seqs,
               cuda::NumBlocks(p.channels, of_tokens ? cuda::kRowThreads : cuda::kWarp), 1},
      .block = {of_tokens ? cuda::kRowThreads : cuda::kConvWarps * cuda::kWarp, 1, 1}};
  if (!of_tokens) {
    shape.shared_bytes = (2 * taps - 1 + cuda::kConvRows) * cuda::kWarp * 4;
  }
  Enqueue(driver_, cuda::ConvolveKernel(of_tokens), shape, p);
}

}  // namespace bulkhead
