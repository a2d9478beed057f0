// Elements of arrays in the number formats that weights and caches are stored in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/matrix.h"

namespace bulkhead {

// Element `index` of an array of `dtype` (f32, bf16 or f16). Stores round to nearest even; too
// large for f16 becomes infinite.
float LoadNumber(const std::byte* array, DType dtype, int64_t index);
void StoreNumber(float value, std::byte* array, DType dtype, int64_t index);

}  // namespace bulkhead
