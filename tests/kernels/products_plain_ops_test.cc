// The plain ops of the CPU backend: one right answer per output, views with strides, nothing on
// nothing.
#include <cmath>
#include <cstring>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

ConstMatrixView RowOf(const std::vector<float>& values) {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 1,
                         values.size());
}

// Large enough that several threads share it.
constexpr int64_t kRows = 67, kCols = 600, kStride = 640;

TEST(PlainOpsTest, AddBiasAddsTheSameRowToEach) {
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

TEST(PlainOpsTest, AddResidualAddsTheBiasFirst) {
  CpuFixture cpu(Isa::kPlain, 3);
  const std::vector<float> start = NormalFloats(kRows * kStride, 3);
  std::vector<float> sum = NormalFloats(kRows * kCols, 4);
  const std::vector<float> bias = NormalFloats(kCols, 5);
  std::vector<float> with_bias = start;
  std::vector<float> without = start;
  cpu.backend().AddResidual(ViewOf(sum, kRows, kCols, kCols), RowOf(bias),
                            ViewOf(with_bias, kRows, kCols, kStride));
  cpu.backend().AddResidual(ViewOf(sum, kRows, kCols, kCols), ConstMatrixView(),
                            ViewOf(without, kRows, kCols, kStride));
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kCols; ++i) {
      const int64_t at = t * kStride + i;
      ASSERT_EQ(with_bias[at], start[at] + (sum[t * kCols + i] + bias[i]));
      ASSERT_EQ(without[at], start[at] + sum[t * kCols + i]);
    }
  }
}

TEST(PlainOpsTest, SelectRowsPicksInAnyOrder) {
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

TEST(PlainOpsTest, FillWritesMinusZeroAsSuch) {
  CpuFixture cpu(Isa::kPlain, 2);
  std::vector<float> x(kRows * kStride, 1.0f);
  cpu.backend().Fill(-0.0f, ViewOf(x, kRows, kCols, kStride));
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    ASSERT_EQ(x[i] == 0.0f && std::signbit(x[i]), i % kStride < kCols);
  }
}

TEST(PlainOpsTest, NothingHappensOnNoRowsOrColumns) {
  CpuFixture cpu(Isa::kPlain, 2);
  std::vector<float> x(12, 3.0f);
  for (const MatrixView view : {ViewOf(x, 0, 4, 4), ViewOf(x, 3, 0, 4)}) {
    cpu.backend().AddBias(ConstMatrixView(), view);
    cpu.backend().AddResidual(view, ConstMatrixView(), view);
    cpu.backend().SelectRows(view, nullptr, view);
    cpu.backend().Fill(1.0f, view);
    cpu.backend().Embed(nullptr, Linear{LinearShape::Whole(4, view.cols(), DType::kF32), nullptr},
                        0, view);
  }
  for (const float value : x) EXPECT_EQ(value, 3.0f);
}

TEST(CpuBackendTest, RefusesWhatItCannotHave) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  for (const int threads : {0, -1, kMaxThreads + 1}) {
    CpuBackendOptions options;
    options.num_threads = threads;
    EXPECT_EQ(NewCpuBackend(*device, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  CpuBackendOptions options;
  options.isa = "neon";
  EXPECT_EQ(NewCpuBackend(*device, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, SizesDependOnNeitherIsaNorThreads) {
  const StepLimits limits{64, 8, 256};
  const int32_t head = 0;
  const HeadLayout heads{1, 1, 16, &head};
  const LinearShape shape = LinearShape::Whole(100, 77, DType::kBF16);
  CpuFixture one(Isa::kPlain, 1);
  for (const Isa isa : PresentIsas()) {
    CpuFixture three(isa, 3);
    EXPECT_EQ(one.backend().WorkspaceBytes(limits, heads),
              three.backend().WorkspaceBytes(limits, heads));
    EXPECT_EQ(one.backend().PackedBytes(shape), three.backend().PackedBytes(shape));
  }
  EXPECT_EQ(one.backend().PackedBytes(shape), 128 * 77 * 2);
}

}  // namespace
}  // namespace bulkhead
