// log, functions of it, and random numbers that are bit-identical on every x86-64, like exp
// (base/token_sampling.h): products and sums in double as written (the build forbids fused
// multiply-add and reordering), no calls into a libm that dispatches by CPU.
// GPU kernels also use it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/token_sampling.h"

namespace bulkhead {

// Natural logarithm of a finite x >= 1, error of a few 1e-16 of max(1, ln x).
constexpr double LogOfAtLeastOne(double x) {
  constexpr double kLn2 = 6.93147180559945286227e-01;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // ln m = 2 atanh s, |s| < 0.1716
  const double s2 = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return static_cast<double>(exponent) * kLn2 + 2.0 * s * sum;
}

// e^x for |x| < 708; a NaN stays one.
constexpr double ExpOf(double x) {
  if (x != x) return x;
  return x > 0 ? 1.0 / ExpOfNonPositive(-x) : ExpOfNonPositive(x);
}

// ln(1 + e^x); a NaN stays one.
constexpr double Softplus(double x) {
  if (x != x) return x;
  return (x > 0 ? x : 0.0) + LogOfAtLeastOne(1.0 + ExpOfNonPositive(x > 0 ? -x : x));
}

// 1 / (1 + e^-x); a NaN stays one.
constexpr double SigmoidOf(double x) {
  if (x != x) return x;
  const double e = ExpOfNonPositive(x > 0 ? -x : x);
  return (x > 0 ? 1.0 : e) / (1.0 + e);
}

// Philox4x32-10 (Salmon et al., 2011): a counter and a key in, 128 random bits out.
inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits, from (seed, sample index, absolute position).
inline double UniformOf(uint64_t seed, uint32_t sample_index, uint64_t position) {
  const std::array<uint32_t, 4> bits = Philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample_index, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

}  // namespace bulkhead
