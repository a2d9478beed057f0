// How weights become codes at load: the same function for every backend, so that all of them hold
// the same weights.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/packing/weight_loops.h"
#include "memory/linear.h"

namespace bulkhead {

struct WeightScaling {
  uint32_t scale = 0;  // its bits; for kE4M3 Fp4ScaleBits
  uint8_t zero = 0;
  ScaleFormat format = ScaleFormat::kF16;  // of the scale

  float Scale() const;
};

// The weights of one output and one cell: codes [weights.size()]. int8: symmetric, scale = largest
// magnitude / 127. int4: from the smallest to the largest, including 0, in 15 steps. Codes are
// computed with the stored scale, rounded to nearest even. A non-finite weight makes the scale NaN.
// Only int8 and int4.
WeightScaling QuantizeWeights(absl::Span<const float> weights, WeightFormat format,
                              const WeightLoops& loops, absl::Span<uint8_t> codes);

// The f32 bits of the scale of fp4's steps (half of the scale of its numbers): the E4M3 number of
// `code` times `factor`.
uint32_t Fp4ScaleBits(uint32_t code, float factor);

// Plain versions, which all others must equal.
extern const WeightLoops kPlainWeightLoops;

// (code - zero) * scale, exactly; fp4: for a step (memory/linear.h), not a code; fp8: the number *
// scale.
float DequantizeWeight(uint8_t code, WeightScaling scaling);

}  // namespace bulkhead
