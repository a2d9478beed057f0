#include "simd.h"
#include "kernels/causal_conv/op.h"
#include "kernels/simd/for_vectors.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr int kMaxTaps = 16;

}  // namespace

void Convolve(const ConvRows& c) {
  const int kept = c.taps - 1;
  ForVectors(c.channels, [&](int64_t channel, auto vector) {
    const int64_t left = c.channels - channel;
    const int lanes = left < kLanes ? static_cast<int>(left) : kLanes;
    float by_tap[kMaxTaps][kLanes] = {};
    for (int lane = 0; lane < lanes; ++lane) {
      for (int tap = 0; tap < c.taps; ++tap) {
        by_tap[tap][lane] = c.weight[(channel + lane) * c.taps + tap];
      }
    }
    int oldest = static_cast<int>(c.position % kept);  // and where the row's own input belongs
    for (int64_t row = 0; row < c.rows; ++row) {
      float* const x = c.x + row * c.x_stride + channel;
      const F32x16 input = vector.Load(x);
      const int64_t position = c.position + row;
      const int absent = position < kept ? kept - static_cast<int>(position) : 0;
      F32x16 sum = Zero();
      for (int tap = absent; tap < kept; ++tap) {
        const int at = oldest + tap < kept ? oldest + tap : oldest + tap - kept;
        const float* const before = c.inputs + at * c.inputs_stride + channel;
        sum = Fma(Load(by_tap[tap]), vector.Load(before), sum);
      }
      vector.Store(c.inputs + oldest * c.inputs_stride + channel, input);
      vector.Store(x, Fma(Load(by_tap[kept]), input, sum));
      oldest = oldest + 1 < kept ? oldest + 1 : 0;
    }
  });
}

}  // namespace bulkhead::BH_ISA
