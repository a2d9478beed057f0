#include "kernels/reference/number_format.h"

#include <cstring>

#include "kernels/simd/number_format.h"

namespace bulkhead {

float LoadNumber(const std::byte* array, DType dtype, int64_t index) {
  const std::byte* element = array + index * DTypeBytes(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof bits);
  return dtype == DType::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
}

void StoreNumber(float value, std::byte* array, DType dtype, int64_t index) {
  std::byte* element = array + index * DTypeBytes(dtype);
  if (dtype == DType::kF32) {
    std::memcpy(element, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? Bf16OfF32(value) : F16OfF32(value);
  std::memcpy(element, &bits, sizeof bits);
}

}  // namespace bulkhead
