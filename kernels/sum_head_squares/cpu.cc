#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {
namespace {

// The sum over leaves [begin, end), a power of two of them, of one token's heads at x.
float SumOfLeaves(float (*sum_of_squares)(const float*, int64_t), const float* x, int head_dim,
                  absl::Span<const int64_t> borders, int64_t begin, int64_t end) {
  if (end - begin == 1) {
    float sum = -0.0F;
    for (int64_t head = borders[begin]; head < borders[end]; ++head) {
      sum += sum_of_squares(x + head * head_dim, head_dim);
    }
    return sum;
  }
  const int64_t middle = (begin + end) / 2;
  return SumOfLeaves(sum_of_squares, x, head_dim, borders, begin, middle) +
         SumOfLeaves(sum_of_squares, x, head_dim, borders, middle, end);
}

}  // namespace

void CpuBackend::SumHeadSquares(const HeadLayout& heads, const HeadLeaves& leaves,
                                ConstMatrixView qkv, MatrixView squares) {
  const auto num_leaves = static_cast<int64_t>(leaves.q.size()) - 1;
  BH_CHECK(squares.rows() == qkv.rows() && squares.cols() == 2);
  BH_CHECK(num_leaves >= 1 && (num_leaves & (num_leaves - 1)) == 0 &&
           leaves.k.size() == leaves.q.size());
  BH_CHECK(leaves.q.back() <= heads.num_heads && leaves.k.back() <= heads.num_kv_heads);
  const auto sum_of_squares = BH_OF_ISA(isa_, SumOfSquares);
  const int d = heads.head_dim;
  const int64_t k_begin = int64_t{heads.num_heads} * d;
  pool_->ParallelForWork(qkv.rows(), qkv.rows() * qkv.cols(), [&](int, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* const q = qkv.F32(t);
      float* const out = squares.F32(t);
      out[0] = SumOfLeaves(sum_of_squares, q, d, leaves.q, 0, num_leaves);
      out[1] = SumOfLeaves(sum_of_squares, q + k_begin, d, leaves.k, 0, num_leaves);
    }
  });
}

}  // namespace bulkhead
