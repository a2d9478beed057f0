// Partial sums whose total depends on the order of addition, and a simple reference for the
// promised order.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace bulkhead {

// Values of very different size and sign; some are -0.0. Deterministic in (seed, rank).
inline std::vector<float> MakePartialSum(uint64_t seed, int rank, int64_t elements) {
  std::mt19937_64 random(seed * 131 + rank);
  std::vector<float> partial(elements);
  for (float& value : partial) {
    const uint64_t bits = random();
    value = static_cast<float>(static_cast<int64_t>(bits) >> 40);
    value *= (bits & 1) != 0 ? 1e-6F : 0.37F;
    if ((bits & 30) == 0) value = -0.0F;
  }
  return partial;
}

inline float TreeOf(const std::vector<std::vector<float>>& partial_sums, int begin, int end,
                    int64_t i) {
  if (end - begin == 1) return partial_sums[begin][i];
  const int middle = begin + (end - begin + 1) / 2;
  return TreeOf(partial_sums, begin, middle, i) + TreeOf(partial_sums, middle, end, i);
}

inline std::vector<float> ExpectedSum(uint64_t seed, int size, int64_t elements) {
  std::vector<std::vector<float>> partial_sums;
  for (int rank = 0; rank < size; ++rank)
    partial_sums.push_back(MakePartialSum(seed, rank, elements));
  std::vector<float> sum(elements);
  for (int64_t i = 0; i < elements; ++i) sum[i] = TreeOf(partial_sums, 0, size, i);
  return sum;
}

inline bool SameBits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

}  // namespace bulkhead
