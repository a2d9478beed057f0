#include "kernels/reference/ordered_math.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/simd/exp_constants.h"

namespace bulkhead::ordered {

float FoldLanes(const float lanes[kLanes]) {
  float folded[kLanes];
  std::copy_n(lanes, kLanes, folded);
  for (int half = kLanes / 2; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) folded[i] += folded[i + half];
  }
  return folded[0];
}

float Exp(float x) {
  if (x < kExpMin) return 0.0f;
  const float t = std::fma(x, kExpLog2E, kExpRoundMagic);
  const float n = t - kExpRoundMagic;
  const float r = std::fma(n, -kExpLn2Low, std::fma(n, -kExpLn2High, x));
  float q = std::fma(kExpC6, r, kExpC5);
  q = std::fma(q, r, kExpC4);
  q = std::fma(q, r, kExpC3);
  q = std::fma(q, r, kExpC2);
  const float p = std::fma(std::fma(q, r, 1.0f), r, 1.0f);
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(t) << 23) + 0x3f800000u);
}

float SoftCap(float x, float soft_cap) {
  if (soft_cap == 0.0f) return x;
  const float twice = x * (2.0f / soft_cap);
  const float e = Exp(-std::fabs(twice));
  const float tanh = (1.0f - e) / (1.0f + e);
  return soft_cap * (twice < 0.0f ? -tanh : tanh);
}

}  // namespace bulkhead::ordered
