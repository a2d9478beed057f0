#include "kernels/packing/weight_quantizer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

constexpr uint16_t kF16Nan = 0x7e00;
constexpr uint16_t kF16Largest = 0x7bff;
constexpr uint8_t kInt8Zero = 128;

// To nearest even, for |x| < 2^22.
float Round(float x) { return (x + 12582912.0F) - 12582912.0F; }

// A stored scale so that `range` is at most `steps` and half a step of it: small scales have few
// digits in f16 and may not round down far.
uint16_t ScaleFor(float range, float steps) {
  uint16_t scale = std::min(F16OfF32(range / steps), kF16Largest);
  if (F32OfF16(scale) * (steps + 0.5F) < range && scale < kF16Largest) ++scale;
  return scale;
}

WeightRange RangeOf(const float* weights, int64_t count) {
  WeightRange range{0.0F, 0.0F, true};
  for (int64_t i = 0; i < count; ++i) {
    range.least = std::min(range.least, weights[i]);
    range.most = std::max(range.most, weights[i]);
    range.finite = range.finite && std::isfinite(weights[i]);
  }
  return range;
}

void Encode(const float* weights, int64_t count, float inverse, float zero, float least, float most,
            uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    const float steps = std::min(std::max(weights[i] * inverse, -1e6F), 1e6F);
    codes[i] = static_cast<uint8_t>(std::min(std::max(Round(steps) + zero, least), most));
  }
}

}  // namespace

const WeightLoops kPlainWeightLoops = {RangeOf, Encode};

WeightScaling QuantizeWeights(absl::Span<const float> weights, WeightFormat format,
                              const WeightLoops& loops, absl::Span<uint8_t> codes) {
  BH_CHECK(IsQuantized(format) && codes.size() == weights.size());
  const auto count = static_cast<int64_t>(weights.size());
  const auto [least, most, finite] = loops.range_of(weights.data(), count);
  WeightScaling scaling;
  const bool is_int8 = format == WeightFormat::kInt8;
  if (is_int8) {
    scaling = {ScaleFor(std::max(-least, most), 127.0F), kInt8Zero};
  } else {
    scaling.scale = ScaleFor(most / 2 - least / 2, 7.5F);  // halved: no overflow
    const float scale = F32OfF16(scaling.scale);
    const float zero = scale == 0.0F ? 0.0F : Round(std::min(-least / scale, 15.0F));
    scaling.zero = static_cast<uint8_t>(zero);
  }
  if (!finite) {
    std::fill(codes.begin(), codes.end(), scaling.zero);
    // 0 * NaN is NaN: what reads one of these weights is noticed.
    return {kF16Nan, scaling.zero};
  }
  const float scale = F32OfF16(scaling.scale);
  loops.encode(weights.data(), count, scale == 0.0F ? 0.0F : 1.0F / scale,
               static_cast<float>(scaling.zero), is_int8 ? 1.0F : 0.0F, is_int8 ? 255.0F : 15.0F,
               codes.data());
  return scaling;
}

float DequantizeWeight(uint8_t code, WeightScaling scaling) {
  return static_cast<float>(int{code} - int{scaling.zero}) * F32OfF16(scaling.scale);
}

}  // namespace bulkhead
