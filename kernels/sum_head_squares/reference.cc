#include <vector>

#include "kernels/reference/reference_backend.h"
#include "kernels/rms_norm/reference.h"

namespace bulkhead {
namespace {

// Leaves joined in adjacent pairs until one is left.
float SumInOrder(const float* x, int head_dim, absl::Span<const int64_t> borders) {
  std::vector<float> sums(borders.size() - 1, -0.0f);
  for (size_t leaf = 0; leaf < sums.size(); ++leaf) {
    for (int64_t head = borders[leaf]; head < borders[leaf + 1]; ++head) {
      sums[leaf] += SumOfSquaresInOrder(x + head * head_dim, head_dim);
    }
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

float SumInDouble(const float* x, int head_dim, absl::Span<const int64_t> borders) {
  double sum = 0;
  for (int64_t i = borders.front() * head_dim; i < borders.back() * head_dim; ++i) {
    sum += double{x[i]} * x[i];
  }
  return static_cast<float>(sum);
}

}  // namespace

void ReferenceBackend::SumHeadSquares(const HeadLayout& heads, const HeadLeaves& leaves,
                                      ConstMatrixView qkv, MatrixView squares) {
  const auto sum = in_order_ ? SumInOrder : SumInDouble;
  for (int64_t t = 0; t < squares.rows(); ++t) {
    const float* const q = qkv.F32(t);
    squares.F32(t)[0] = sum(q, heads.head_dim, leaves.q);
    squares.F32(t)[1] =
        sum(q + int64_t{heads.num_heads} * heads.head_dim, heads.head_dim, leaves.k);
  }
}

}  // namespace bulkhead
