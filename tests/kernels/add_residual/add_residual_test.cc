#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

// Large enough that several threads share it.
constexpr int64_t kRows = 67, kCols = 600, kStride = 640;

TEST(AddResidualTest, AddResidualAddsTheBiasThenMultiplies) {
  CpuFixture cpu(Isa::kPlain, 3);
  const std::vector<float> start = NormalFloats(kRows * kStride, 3);
  std::vector<float> sum = NormalFloats(kRows * kCols, 4);
  const std::vector<float> bias = NormalFloats(kCols, 5);
  std::vector<float> with_bias = start;
  std::vector<float> without = start;
  cpu.backend().AddResidual(ViewOf(sum, kRows, kCols, kCols), RowOf(bias), 0.22f,
                            ViewOf(with_bias, kRows, kCols, kStride));
  cpu.backend().AddResidual(ViewOf(sum, kRows, kCols, kCols), ConstMatrixView(), 1,
                            ViewOf(without, kRows, kCols, kStride));
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kCols; ++i) {
      const int64_t at = t * kStride + i;
      ASSERT_EQ(with_bias[at], start[at] + 0.22f * (sum[t * kCols + i] + bias[i]));
      ASSERT_EQ(without[at], start[at] + sum[t * kCols + i]);
    }
  }
}

}  // namespace
}  // namespace bulkhead
