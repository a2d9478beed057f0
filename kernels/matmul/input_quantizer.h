// How activations become codes for products in int8 (--activation-dtype int8): every variant of the
// kernels must give the same bits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace bulkhead {

// One row's inputs of one cell.
struct InputScaling {
  float scale = 0;
  int32_t sum = 0;  // of the codes
};

// codes = x * (127 / largest magnitude), to nearest even; scale = largest magnitude / 127. If all
// inputs are below 1e-30 they count as 0; if one is not finite the scale is NaN and codes are 0.
InputScaling QuantizeInputs(absl::Span<const float> x, absl::Span<int8_t> codes);

}  // namespace bulkhead
