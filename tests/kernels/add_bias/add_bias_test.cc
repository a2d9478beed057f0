#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

// Large enough that several threads share it.
constexpr int64_t kRows = 67, kCols = 600, kStride = 640;

TEST(AddBiasTest, AddBiasAddsTheSameRowToEach) {
  CpuFixture cpu(Isa::kPlain, 3);
  std::vector<float> x = NormalFloats(kRows * kStride, 1);
  const std::vector<float> before = x;
  const std::vector<float> bias = NormalFloats(kCols, 2);
  cpu.backend().AddBias(RowOf(bias), ViewOf(x, kRows, kCols, kStride));
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    const int64_t col = i % kStride;
    ASSERT_EQ(x[i], col < kCols ? before[i] + bias[col] : before[i]);
  }
}

}  // namespace
}  // namespace bulkhead
