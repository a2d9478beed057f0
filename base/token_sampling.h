// Token sampling arithmetic shared by the host sampler (runtime/engine/sampler.h) and the device
// kernels (kernels/sample/), so that both sample the same token. Products and sums in double
// as written: both builds forbid fused multiply-add and reordering. Plain C++: .cu files include
// it.
#pragma once

#include <stdint.h>

#include <bit>

namespace bulkhead {

// Number of top candidates that each rank contributes from its columns.
inline constexpr int kCandidates = 256;

// Sampling parameters of one row on a device.
struct TokenSampling {
  double uniform = 0;  // [0, 1)
  double per_temperature = 1;
  double min_p = 0;
  double top_p = 1;
  int32_t top_k = 1;  // at most kCandidates - banned tokens; 1: greedy; 0: samples the whole row
  int32_t slot = -1;  // the sequence's slot; -1: unused row, nothing is sampled
  int32_t banned_begin = 0;
  int32_t banned_count = 0;

  // Whether only the most likely token is needed.
  constexpr bool greedy() const { return top_k == 1 && banned_count == 0; }
};
// Returned instead of a token: a logit is NaN or +inf; or all tokens are banned.
inline constexpr int32_t kNotFinite = -1;
inline constexpr int32_t kNothingToSample = -2;

// e^x for x <= 0, relative error of a few 1e-16; 0 below -708. Branch-free, so that loops
// vectorise.
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
  // The low bits of `shifted` hold n in two's complement: shifted into the exponent they multiply
  // by 2^n.
  const auto scale = std::bit_cast<uint64_t>(shifted) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + scale);
}

// The weight exp((logit - max) / temperature) of a token; `max` is the largest logit.
constexpr double WeightOf(float logit, float max, double per_temperature) {
  return ExpOfNonPositive((static_cast<double>(logit) - static_cast<double>(max)) *
                          per_temperature);
}
inline constexpr double kNoWeight = 1e-300;  // smaller ones are dropped

// top-p finds its cutoff in buckets of weights by exponent and the top four mantissa bits, largest
// first; the last bucket takes everything below 2^-64.
inline constexpr int kNumBuckets = 1026;
constexpr int BucketOf(double weight) {
  const auto top = static_cast<int64_t>(std::bit_cast<uint64_t>(weight) >> 48);
  const int64_t bucket = 0x3FF0 - top;
  return static_cast<int>(bucket < kNumBuckets - 1 ? bucket : kNumBuckets - 1);
}
// The least weight of a bucket; 0 for the last one.
constexpr double LeastOfBucket(int bucket) {
  return bucket < kNumBuckets - 1 ? std::bit_cast<double>((uint64_t{0x3FF0} - bucket) << 48) : 0;
}

// Sums over tokens in ascending id order are accumulated per chunk of this many ids, then over
// chunks.
inline constexpr int32_t kChunkIds = 1024;

}  // namespace bulkhead
