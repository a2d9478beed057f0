// Options of attention besides the plain softmax: a window or chunks, soft caps, sinks.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/cuda_kernels.h"

namespace bulkhead::cuda {

inline constexpr float kLog2OfE = 1.4426950408889634F;

// The first position that a token sees.
BH_DEVICE int FirstSeen(const AttendParameters& p, int position) {
  const int of_chunk = p.chunk > 0 ? position / p.chunk * p.chunk : 0;
  const int of_window = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
  return of_chunk > of_window ? of_chunk : of_window;
}

// soft_cap * tanh(score / soft_cap) of a score in base 2: tanh(x) = 1 - 2 / (1 + exp(2 x)).
BH_DEVICE float Capped(const AttendParameters& p, float score) {
  const float cap = p.soft_cap * kLog2OfE;
  return cap - 2.0F * cap / (1.0F + Exp2(score * (2.0F / p.soft_cap)));
}

// A head's sink is one more score, without a value: adds it to the sum of a softmax with greatest
// score `greatest`, in base 2. Returns the factor for sums over values.
BH_DEVICE float AddSink(const AttendParameters& p, int head, float greatest, float& sum) {
  if (p.sinks == nullptr) return 1.0F;
  const float sink = p.sinks[head] * kLog2OfE;
  const float most = fmaxf(greatest, sink);
  const float shrink = Exp2(greatest - most);
  sum = fmaf(sum, shrink, Exp2(sink - most));
  return shrink;
}

}  // namespace bulkhead::cuda
