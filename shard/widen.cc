#include "shard/widen.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace bulkhead {
namespace {

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fU;
  const uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exactly
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xffU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

}  // namespace

void WidenToF32(const std::byte* values, DType dtype, int64_t count, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, values + i * 2, sizeof(bits));
    out[i] = dtype == DType::kBF16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                                   : HalfToFloat(bits);
  }
}

}  // namespace bulkhead
