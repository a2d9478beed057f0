#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/causal_conv/op.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::CausalConv(const StepIndex& index, ConstMatrixView weight,
                            const StateLayerView& state, MatrixView x) {
  const int64_t channels = x.cols();
  const int taps = state.geometry.conv_taps;
  if (index.num_tokens == 0 || channels == 0) return;
  BH_CHECK(channels == state.geometry.heads.qkv_dim() && weight.cols() == channels * taps &&
           taps <= 16);
  const auto convolve = BH_OF_ISA(isa_, Convolve);
  constexpr int64_t kGroup = 64;  // channels that a thread takes together
  pool_->ParallelForWork(CeilDiv(channels, kGroup), index.num_tokens * channels * taps,
                         [&](int, int64_t begin, int64_t end) {
                           for (int64_t group = begin; group < end; ++group) {
                             const int64_t first = group * kGroup;
                             for (int seq = 0; seq < index.num_seqs; ++seq) {
                               const int64_t row = index.seq_begin[seq];
                               convolve({.weight = weight.F32() + first * taps,
                                         .taps = taps,
                                         .channels = std::min(kGroup, channels - first),
                                         .inputs = state.Inputs(index.seq_slot[seq]) + first,
                                         .inputs_stride = channels,
                                         .x = x.F32(row) + first,
                                         .x_stride = x.row_stride(),
                                         .rows = index.seq_begin[seq + 1] - row,
                                         .position = index.position[row]});
                             }
                           }
                         });
}

}  // namespace bulkhead
