// Drawing a token from weights: what the host's sampler (runtime/engine/sampler.h) and the kernel
// on a device (kernels/sample/cuda.cu) share, so that both draw the same token. Products and sums
// in double as written: both builds forbid fused and reordered ones. Plain: .cu files include this.
#pragma once

#include <stdint.h>

#include <bit>

namespace bulkhead {

// So many of the likeliest ids of its columns each rank brings.
inline constexpr int kCandidates = 256;

// How the token of a row is drawn on a device. A greedy row keeps a top_k of 1.
struct TokenSampling {
  double uniform = 0;  // [0, 1)
  double per_temperature = 1;
  double min_p = 0;
  double top_p = 1;
  int32_t top_k = 1;  // [1, kCandidates], less what is banned
  int32_t slot = -1;  // of the sequence; -1: no row, nothing is drawn
  int32_t banned_begin = 0;
  int32_t banned_count = 0;
};
// What a row has instead of a token: a logit that is NaN or +inf; or all are ruled out.
inline constexpr int32_t kNotFinite = -1;
inline constexpr int32_t kNothingToSample = -2;

// e^x for x <= 0, with a relative error of a few 1e-16; 0 below -708. Free of branches, so that
// loops over it vectorise.
constexpr double ExpOfNonPositive(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High =
      6.93147180369123816490e-01;  // its low 32 bits are 0: n * high is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double clamped = x > -708.0 ? x : -708.0;
  const double shifted = clamped * kLog2E + kRounder;
  const double n = shifted - kRounder;
  const double r = (clamped - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The low bits of `shifted` hold n in two's complement: moved into the exponent they multiply by
  // 2^n.
  const auto scale = std::bit_cast<uint64_t>(shifted) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + scale);
}

// The weight exp((logit - max) / temperature) of a token; `max` is the greatest logit.
constexpr double WeightOf(float logit, float max, double per_temperature) {
  return ExpOfNonPositive((static_cast<double>(logit) - static_cast<double>(max)) *
                          per_temperature);
}
inline constexpr double kNoWeight = 1e-300;  // smaller ones are dropped

// top-p looks for where its run ends among buckets of weights by exponent and four bits of
// mantissa, the largest first; the last takes all below 2^-64.
inline constexpr int kNumBuckets = 1026;
constexpr int BucketOf(double weight) {
  const auto top = static_cast<int64_t>(std::bit_cast<uint64_t>(weight) >> 48);
  const int64_t bucket = 0x3FF0 - top;
  return static_cast<int>(bucket < kNumBuckets - 1 ? bucket : kNumBuckets - 1);
}

// Sums over tokens in ascending id add up within chunks of so many ids, then the chunks.
inline constexpr int32_t kChunkIds = 1024;

}  // namespace bulkhead
