// The constants of our own exp, the same for all backends, so that attention and activations give
// the same bits everywhere. In f32, every operation rounded once:
//   t = fma(x, kLog2E, kRoundMagic)      n = t - kRoundMagic: x / ln 2 to the nearest whole number
//   r = fma(n, -kLn2Low, fma(n, -kLn2High, x))                                    |r| <= 0.347
//   q = fma(fma(fma(fma(c6, r, c5), r, c4), r, c3), r, c2)
//   p = fma(fma(q, r, 1), r, 1)                                exp(r) = 1 + r + r^2 q(r)
//   exp(x) = p * 2^n: the exponent of 2^n is the low bits of t
// x above kExpMax is taken as kExpMax, and below kExpMin the result is +0. The relative error is at
// most 1.5e-7. The polynomial interpolates (exp(r) - 1 - r) / r^2 at five Chebyshev nodes.
#pragma once

namespace bulkhead {

inline constexpr float kExpMin = -87.0f;
inline constexpr float kExpLog2E = 0x1.715476p+0f;
inline constexpr float kExpRoundMagic = 0x1.8p+23f;
inline constexpr float kExpLn2High = 0x1.62e43p-1f;
inline constexpr float kExpLn2Low = -0x1.05c61p-29f;
inline constexpr float kExpC2 = 0.5f;
inline constexpr float kExpC3 = 0x1.5554dcp-3f;
inline constexpr float kExpC4 = 0x1.55551ap-5f;
inline constexpr float kExpC5 = 0x1.120ba2p-7f;
inline constexpr float kExpC6 = 0x1.6d113cp-10f;

// 2^x for x <= 0, for weights rounded to bf16:
//   t = x + kRoundMagic      n = t - kRoundMagic      r = x - n                    |r| <= 0.5
//   p = fma(fma(fma(d3, r, d2), r, d1), r, 1)
//   2^x = p with n added to its exponent, by its bits; below kExp2Min the result is +0
// The relative error is at most 1.1e-4, a twentieth of bf16's, and minimal among such polynomials
// that are 1 at 0.
inline constexpr float kExp2Min = -125.0f;
inline constexpr float kExp2D1 = 0x1.62f5fcp-1f;
inline constexpr float kExp2D2 = 0x1.f00c4ep-3f;
inline constexpr float kExp2D3 = 0x1.c2a1f4p-5f;

// Attention is cut at absolute multiples of this many positions.
inline constexpr int kAttentionChunk = 256;

}  // namespace bulkhead
