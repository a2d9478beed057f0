// Partial sums whose total depends on the order of addition, and a simple reference for the
// promised order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/communicator.h"

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

// One GatherRows of `round`: rows to any ranks, also none to some; rank r has (r + round) % 4
// columns. Empty: every row is where it belongs and nothing else was written; else what is wrong.
inline std::string GatherRowsOnce(Communicator& comm, int round) {
  std::mt19937 random(round);
  const int size = comm.size();
  const int me = comm.rank();
  std::vector<int64_t> cols;
  int64_t width = 0;
  for (int r = 0; r < size; ++r) width += cols.emplace_back((r + round) % 4);
  std::vector<int> rank_of_row(random() % 9);
  for (int& rank : rank_of_row) rank = static_cast<int>(random() % size);
  const auto rows = static_cast<int64_t>(rank_of_row.size());
  const auto value = [&](int rank, int64_t row, int64_t col) {
    return static_cast<float>(round * 10'000 + rank * 100 + row * 10 + col);
  };
  const int64_t own_rows = std::count(rank_of_row.begin(), rank_of_row.end(), me);
  const int64_t stride = cols[me] + 2;
  std::vector<float> part(rows * stride, -1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols[me]; ++col) part[row * stride + col] = value(me, row, col);
  }
  std::vector<float> out(own_rows * (width + 1), -2);
  const absl::Status status =
      comm.GatherRows(ConstMatrixView(reinterpret_cast<const std::byte*>(part.data()), DType::kF32,
                                      rows, cols[me], stride),
                      cols, rank_of_row,
                      MatrixView(reinterpret_cast<std::byte*>(out.data()), DType::kF32, own_rows,
                                 width, width + 1));
  if (!status.ok()) return std::string(status.message());
  const float* at = out.data();
  for (int64_t row = 0; row < rows; ++row) {
    if (rank_of_row[row] != me) continue;
    for (int rank = 0; rank < size; ++rank) {
      for (int64_t col = 0; col < cols[rank]; ++col) {
        if (*at++ != value(rank, row, col)) return "a number is not where it belongs";
      }
    }
    if (*at++ != -2) return "the gap behind a row was written";
  }
  return "";
}

}  // namespace bulkhead
