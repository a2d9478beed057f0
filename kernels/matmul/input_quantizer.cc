#include "kernels/matmul/input_quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace bulkhead {

InputScaling QuantizeInputs(absl::Span<const float> x, absl::Span<int8_t> codes) {
  BH_CHECK(codes.size() == x.size());
  std::fill(codes.begin(), codes.end(), int8_t{0});
  float max = 0.0F;
  for (const float value : x) {
    if (!std::isfinite(value)) return {std::numeric_limits<float>::quiet_NaN(), 0};
    max = std::max(max, std::fabs(value));
  }
  if (max < 1e-30F) return {};
  const float inverse = 127.0F / max;
  InputScaling scaling{max / 127.0F, 0};
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    scaling.sum += codes[i];
  }
  return scaling;
}

}  // namespace bulkhead
