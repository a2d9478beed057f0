#include <cstring>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

// Large enough that several threads share it.
constexpr int64_t kRows = 67, kCols = 600, kStride = 640;

TEST(SelectRowsTest, SelectRowsPicksInAnyOrder) {
  CpuFixture cpu(Isa::kPlain, 3);
  std::vector<float> x = NormalFloats(kRows * kStride, 6);
  std::vector<int32_t> rows;
  for (int i = 0; i < 100; ++i) rows.push_back(i * 31 % kRows);
  std::vector<float> out(100 * kCols);
  cpu.backend().SelectRows(ViewOf(x, kRows, kCols, kStride), rows.data(),
                           ViewOf(out, 100, kCols, kCols));
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(0, std::memcmp(&out[i * kCols], &x[rows[i] * kStride], kCols * sizeof(float)));
  }
}

}  // namespace
}  // namespace bulkhead
