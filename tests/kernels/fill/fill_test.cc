#include <cmath>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

// Large enough that several threads share it.
constexpr int64_t kRows = 67, kCols = 600, kStride = 640;

TEST(FillTest, FillWritesMinusZeroAsSuch) {
  CpuFixture cpu(Isa::kPlain, 2);
  std::vector<float> x(kRows * kStride, 1.0f);
  cpu.backend().Fill(-0.0f, ViewOf(x, kRows, kCols, kStride));
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    ASSERT_EQ(x[i] == 0.0f && std::signbit(x[i]), i % kStride < kCols);
  }
}

}  // namespace
}  // namespace bulkhead
