// Conversions between f32 and the number formats that weights and caches are stored in, in portable
// integer arithmetic. The SIMD kernels convert with their own instructions and give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/matrix.h"

namespace bulkhead {

float FloatFromBF16(uint16_t bits);
float FloatFromF16(uint16_t bits);

// Round to nearest even. Too large for f16 becomes infinite; a NaN stays one.
uint16_t BF16FromFloat(float value);
uint16_t F16FromFloat(float value);

// Element `index` of an array of `dtype` (f32, bf16 or f16).
float LoadNumber(const std::byte* array, DType dtype, int64_t index);
void StoreNumber(float value, std::byte* array, DType dtype, int64_t index);

}  // namespace bulkhead
