#include "kernels/packing/weight_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

constexpr uint16_t kF16Nan = 0x7e00;
constexpr uint16_t kF16MaxBits = 0x7bff;
constexpr uint8_t kInt8Zero = 128;

// Rounds to nearest even, for |x| < 2^22.
float Round(float x) { return (x + 12582912.0F) - 12582912.0F; }

// A stored scale for which `range` is at most `steps` + 0.5 steps: small f16 scales have few digits
// and must not round down far.
uint16_t ScaleFor(float range, float steps) {
  uint16_t scale = std::min(F16OfF32(range / steps), kF16MaxBits);
  if (F32OfF16(scale) * (steps + 0.5F) < range && scale < kF16MaxBits) ++scale;
  return scale;
}

WeightRange RangeOf(const float* weights, int64_t count) {
  WeightRange range{0.0F, 0.0F, true};
  for (int64_t i = 0; i < count; ++i) {
    range.min = std::min(range.min, weights[i]);
    range.max = std::max(range.max, weights[i]);
    range.finite = range.finite && std::isfinite(weights[i]);
  }
  return range;
}

void Encode(const float* weights, int64_t count, float inverse, float zero, float min, float max,
            uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    const float steps = std::min(std::max(weights[i] * inverse, -1e6F), 1e6F);
    codes[i] = static_cast<uint8_t>(std::min(std::max(Round(steps) + zero, min), max));
  }
}

}  // namespace

const WeightLoops kPlainWeightLoops = {RangeOf, Encode};

WeightScaling QuantizeWeights(absl::Span<const float> weights, WeightFormat format,
                              const WeightLoops& loops, absl::Span<uint8_t> codes) {
  BH_CHECK((format == WeightFormat::kInt8 || format == WeightFormat::kInt4) &&
           codes.size() == weights.size());
  const auto count = static_cast<int64_t>(weights.size());
  const auto [min, max, finite] = loops.range_of(weights.data(), count);
  WeightScaling scaling;
  const bool is_int8 = format == WeightFormat::kInt8;
  if (is_int8) {
    scaling = {ScaleFor(std::max(-min, max), 127.0F), kInt8Zero};
  } else {
    scaling.scale = ScaleFor(max / 2 - min / 2, 7.5F);  // halved: no overflow
    const float scale = F32OfF16(scaling.scale);
    const float zero = scale == 0.0F ? 0.0F : Round(std::min(-min / scale, 15.0F));
    scaling.zero = static_cast<uint8_t>(zero);
  }
  if (!finite) {
    std::fill(codes.begin(), codes.end(), scaling.zero);
    // 0 * NaN is NaN: using one of these weights is noticed.
    return {kF16Nan, scaling.zero};
  }
  const float scale = F32OfF16(scaling.scale);
  loops.encode(weights.data(), count, scale == 0.0F ? 0.0F : 1.0F / scale,
               static_cast<float>(scaling.zero), is_int8 ? 1.0F : 0.0F, is_int8 ? 255.0F : 15.0F,
               codes.data());
  return scaling;
}

float WeightScaling::Scale() const {
  switch (format) {
    case ScaleFormat::kF16:
      return F32OfF16(static_cast<uint16_t>(scale));
    case ScaleFormat::kBF16:
      return F32OfBf16(static_cast<uint16_t>(scale));
    case ScaleFormat::kE4M3:
    case ScaleFormat::kF32:
      return F32OfBits(scale);
    case ScaleFormat::kE8M0:
      break;
  }
  // 2^-127 is subnormal; steps are halves.
  return F32OfBits(scale == 0 ? 0x00400000 : scale << 23) * 0.5F;
}

namespace {

// The E4M3 value of `code` times 2^-120.
float SmallE4m3(uint32_t code) { return F32OfBits((code & 0x80U) << 24 | (code & 0x7FU) << 20); }

}  // namespace

uint32_t Fp4ScaleBits(uint32_t code, float factor) {
  return std::bit_cast<uint32_t>(SmallE4m3(code) * 0x1p119F * factor);
}

float DequantizeWeight(uint8_t code, WeightScaling scaling) {
  if (scaling.format == ScaleFormat::kF32) return SmallE4m3(code) * 0x1p120F * scaling.Scale();
  return static_cast<float>(int{code} - int{scaling.zero}) * scaling.Scale();
}

}  // namespace bulkhead
