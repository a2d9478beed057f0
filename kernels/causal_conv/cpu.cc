#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/causal_conv/op.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

void CpuBackend::CausalConv(const StepIndex& index, ConstMatrixView weight,
                            const StateLayerView& state, MatrixView x) {
  const int64_t all = x.cols();
  const int taps = state.geometry.conv_taps;
  if (index.num_tokens == 0 || all == 0) return;
  BH_CHECK(all == state.geometry.heads.qkv_dim() && weight.cols() == all * taps);
  BH_CHECK(taps >= 2 && taps <= kMaxConvTaps);
  const auto convolve = BH_OF_ISA(isa_, Convolve);
  const auto convolve_group = [&](int64_t first) {
    const int64_t channels = std::min<int64_t>(kConvChannels, all - first);
    float by_tap[kMaxConvTaps * kConvChannels];
    for (int64_t channel = 0; channel < channels; ++channel) {
      const float* const of_channel = weight.F32() + (first + channel) * taps;
      for (int tap = 0; tap < taps; ++tap) by_tap[tap * kConvChannels + channel] = of_channel[tap];
    }
    for (int seq = 0; seq < index.num_seqs; ++seq) {
      const int64_t row = index.seq_begin[seq];
      convolve({.weight = by_tap,
                .taps = taps,
                .channels = channels,
                .inputs = state.Inputs(index.seq_slot[seq]) + first,
                .input_rows = state.geometry.input_rows(),
                .inputs_stride = all,
                .x = x.F32(row) + first,
                .x_stride = x.row_stride(),
                .rows = index.seq_begin[seq + 1] - row,
                .position = index.position[row]});
    }
  };
  pool_->ParallelForWork(CeilDiv(all, kConvChannels), index.num_tokens * all * taps,
                         [&](int, int64_t begin, int64_t end) {
                           for (int64_t group = begin; group < end; ++group) {
                             convolve_group(group * kConvChannels);
                           }
                         });
}

}  // namespace bulkhead
