// How activations become codes for products in int8 (--activation-dtype int8): what every variant
// of the kernels must equal bit for bit.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace bulkhead {

// One row's inputs of one cell.
struct InputScaling {
  float scale = 0;
  int32_t sum = 0;  // of the codes
};

// codes = x * (127 / largest magnitude), to nearest even; scale = largest magnitude / 127. Inputs
// all below 1e-30 count as 0; with one that is no finite number the scale is NaN and codes are 0.
InputScaling QuantizeInputs(absl::Span<const float> x, absl::Span<int8_t> codes);

}  // namespace bulkhead
