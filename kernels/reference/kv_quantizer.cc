#include "kernels/reference/kv_quantizer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

constexpr float kF16Max = 65504.0f;
constexpr uint16_t kF16Nan = 0x7e00;

float Limited(float x) { return std::min(std::max(x, -kF16Max), kF16Max) + 0.0f; }

}  // namespace

KvScaling QuantizeKv(absl::Span<const float> numbers, int levels, absl::Span<uint8_t> codes) {
  BH_CHECK(!numbers.empty() && codes.size() == numbers.size());
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  for (const float x : numbers) {
    if (!std::isfinite(x)) return KvScaling{kF16Nan, kF16Nan};
  }
  const auto [smallest, largest] = std::minmax_element(numbers.begin(), numbers.end());
  const float min = Limited(*smallest);
  const float range = Limited(*largest) - min;
  const KvScaling scaling{F16OfF32(range / static_cast<float>(levels)), F16OfF32(min)};
  const float scale = F32OfF16(scaling.scale);
  if (scale == 0.0f) return scaling;
  const float zero = F32OfF16(scaling.zero);
  const float inverse = 1.0f / scale;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float steps = (numbers[i] - zero) * inverse;
    codes[i] = static_cast<uint8_t>(
        std::nearbyint(std::min(std::max(steps, 0.0f), static_cast<float>(levels))));
  }
  return scaling;
}

float DequantizeKv(int code, KvScaling scaling) {
  return std::fma(static_cast<float>(code), F32OfF16(scaling.scale), F32OfF16(scaling.zero));
}

}  // namespace bulkhead
