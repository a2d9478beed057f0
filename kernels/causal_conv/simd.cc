#include "simd.h"
#include "kernels/causal_conv/op.h"
#include "kernels/simd/for_vectors.h"

namespace bulkhead::BH_ISA {

void Convolve(const ConvRows& c) {
  const int kept = c.taps - 1;
  int own_row = static_cast<int>(c.position % c.input_rows);
  for (int64_t row = 0; row < c.rows; ++row) {
    const int64_t position = c.position + row;
    const int absent = position < kept ? kept - static_cast<int>(position) : 0;
    const float* before[kMaxConvTaps];
    for (int tap = absent; tap < kept; ++tap) {
      const int at = own_row - kept + tap;
      before[tap] = c.inputs + (at < 0 ? at + c.input_rows : at) * c.inputs_stride;
    }
    float* const x = c.x + row * c.x_stride;
    float* const own = c.inputs + own_row * c.inputs_stride;
    ForVectors(c.channels, [&](int64_t i, auto vector) {
      const F32x16 input = vector.Load(x + i);
      F32x16 sum = Zero();
      for (int tap = absent; tap < kept; ++tap) {
        sum =
            Fma(vector.Load(c.weight + tap * kConvChannels + i), vector.Load(before[tap] + i), sum);
      }
      vector.Store(own + i, input);
      vector.Store(x + i, Fma(vector.Load(c.weight + kept * kConvChannels + i), input, sum));
    });
    own_row = own_row + 1 < c.input_rows ? own_row + 1 : 0;
  }
}

}  // namespace bulkhead::BH_ISA
