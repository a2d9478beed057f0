// Conversion of a checkpoint's numbers to f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/matrix.h"

namespace bulkhead {

// out [count] = values [count] of f32, bf16 or f16, exactly.
void WidenToF32(const std::byte* values, DType dtype, int64_t count, float* out);

}  // namespace bulkhead
