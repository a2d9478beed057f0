#include "kernels/reference/ordered_math.h"

#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/simd/exp_constants.h"
#include "kernels/simd/number_format.h"

namespace bulkhead::ordered {
namespace {

// A separate function, so that nothing in it moves out of the mode.
[[gnu::noipa]] float FlushedTileChain(const float* x, const float* w, int64_t begin, int64_t end) {
  float acc = 0.0f;
  for (int64_t tile = begin; tile < end; tile += 32) {
    float sums[2] = {0.0f, 0.0f};  // of even and of odd inputs
    for (int64_t k = tile; k < tile + 32; ++k) {
      float& sum = sums[(k - tile) % 2];
      sum = std::fma(k < end ? x[k] : 0.0f, k < end ? w[k] : 0.0f, sum);
    }
    acc += sums[0] + sums[1];
  }
  return acc;
}

[[gnu::noipa]] float FlushedPairChain(const float* x, const float* w, int64_t begin, int64_t end) {
  float acc = 0.0f;
  for (int64_t k = begin; k < end; k += 2) {
    const bool both = k + 1 < end;
    acc = std::fma(both ? x[k + 1] : 0.0f, both ? w[k + 1] : 0.0f, acc);
    acc = std::fma(x[k], w[k], acc);
  }
  return acc;
}

// Denormal inputs and results are 0.
template <typename Chain>
float InFlushMode(const Chain& chain) {
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);
  const float sum = chain();
  _mm_setcsr(mode);
  return sum;
}

}  // namespace

float RoundFlushed(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : F32OfBf16(Bf16OfF32(x));
}

float PairChain(const float* x, const float* w, int64_t begin, int64_t end) {
  return InFlushMode([&] { return FlushedPairChain(x, w, begin, end); });
}

float TileChain(const float* x, const float* w, int64_t begin, int64_t end) {
  return InFlushMode([&] { return FlushedTileChain(x, w, begin, end); });
}

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

float Exp2ForBf16(float x) {
  if (x < kExp2Min) return 0.0f;
  const float t = x + kExpRoundMagic;
  const float r = x - (t - kExpRoundMagic);
  const float p = std::fma(std::fma(std::fma(kExp2D3, r, kExp2D2), r, kExp2D1), r, 1.0f);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(t) << 23) + std::bit_cast<uint32_t>(p));
}

float SoftCap(float x, float soft_cap) {
  if (soft_cap == 0.0f) return x;
  const float twice = x * (2.0f / soft_cap);
  const float e = Exp(-std::fabs(twice));
  const float tanh = (1.0f - e) / (1.0f + e);
  return soft_cap * (twice < 0.0f ? -tanh : tanh);
}

}  // namespace bulkhead::ordered
