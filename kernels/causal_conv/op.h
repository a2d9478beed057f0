// The kernel of a causal convolution over some channels of one sequence.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"

namespace bulkhead {

inline constexpr int kMaxConvTaps = 16;
inline constexpr int kConvChannels = 256;  // maximum per call

struct ConvRows {
  const float* weight;  // [taps, kConvChannels]
  int taps;
  int64_t channels;
  float* inputs;  // [input_rows, channels]: memory/recurrent_state.h
  int input_rows;
  int64_t inputs_stride;
  float* x;  // [rows, channels], in place
  int64_t x_stride;
  int64_t rows;
  int64_t position;  // of the first row
};

BH_PER_ISA(void Convolve(const ConvRows& rows))

}  // namespace bulkhead
