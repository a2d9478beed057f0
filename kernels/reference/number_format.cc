#include "kernels/reference/number_format.h"

#include <bit>
#include <cstring>

namespace bulkhead {
namespace {

constexpr uint32_t kF32Infinity = 0x7f800000;

// value / 2^shift, rounded to nearest even; shift in [1, 31].
uint32_t ShiftRightRounded(uint32_t value, int shift) {
  const uint32_t floor = value >> shift;
  const uint32_t rest = value & ((uint32_t{1} << shift) - 1);
  const uint32_t half = uint32_t{1} << (shift - 1);
  return floor + (rest > half || (rest == half && (floor & 1) != 0) ? 1 : 0);
}

}  // namespace

float FloatFromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t BF16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~0x80000000) > kF32Infinity) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>(ShiftRightRounded(bits, 16));
}

float FloatFromF16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | kF32Infinity | mantissa << 13);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t F16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & ~0x80000000;
  if (magnitude > kF32Infinity) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and up
  if (magnitude < 0x33000000) return sign;            // below 2^-25
  if (magnitude < 0x38800000) {                       // subnormal in f16
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    return static_cast<uint16_t>(sign | ShiftRightRounded(mantissa, shift));
  }
  return static_cast<uint16_t>(sign | (ShiftRightRounded(magnitude, 13) - (112u << 10)));
}

float LoadNumber(const std::byte* array, DType dtype, int64_t index) {
  const std::byte* element = array + index * DTypeBytes(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof bits);
  return dtype == DType::kBF16 ? FloatFromBF16(bits) : FloatFromF16(bits);
}

void StoreNumber(float value, std::byte* array, DType dtype, int64_t index) {
  std::byte* element = array + index * DTypeBytes(dtype);
  if (dtype == DType::kF32) {
    std::memcpy(element, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? BF16FromFloat(value) : F16FromFloat(value);
  std::memcpy(element, &bits, sizeof bits);
}

}  // namespace bulkhead
