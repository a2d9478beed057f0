#include <cmath>

#include "kernels/reference/reference_backend.h"

namespace bulkhead {

// A chain over the taps, oldest input first, from +0.
void ReferenceBackend::CausalConv(const StepIndex& index, ConstMatrixView weight,
                                  const StateLayerView& state, MatrixView x) {
  const int taps = state.geometry.conv_taps;
  const int input_rows = state.geometry.input_rows();
  for (int t = 0; t < index.num_tokens; ++t) {
    const int position = index.position[t];
    float* const inputs = state.Inputs(index.seq_slot[index.token_seq[t]]);
    for (int64_t channel = 0; channel < x.cols(); ++channel) {
      float in_order = 0;
      double in_double = 0;
      float& at_t = x.F32(t)[channel];
      for (int tap = 0; tap < taps; ++tap) {
        const int at = position + 1 - taps + tap;
        if (at < 0) continue;
        const float input = at == position ? at_t : inputs[at % input_rows * x.cols() + channel];
        const float factor = weight.F32()[channel * taps + tap];
        in_order = std::fma(factor, input, in_order);
        in_double += double{factor} * input;
      }
      inputs[position % input_rows * x.cols() + channel] = at_t;
      at_t = in_order_ ? in_order : static_cast<float>(in_double);
    }
  }
}

}  // namespace bulkhead
