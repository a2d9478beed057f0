// Products of codes of many tokens, whose depth is in parts: right, and a row's bits those of any
// other step, whichever blocks have computed the parts.
#include "kernels/matmul/gemm_parts.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 5e-3;  // norm(got - want) / norm(want)

ProductCase CaseOf(WeightFormat format, int64_t rows, int64_t cols) {
  return {{rows, cols, format, {0, cols}, {128, 0, 0, StoredScalesOf(format)}}, true};
}

std::vector<float> Product(Backend& backend, const ProductCase& c, int rows, bool room_for_parts) {
  std::vector<float> x = NormalFloats(rows * c.shape.cols, 7);
  std::vector<float> out(rows * c.shape.rows, NAN);
  Packed packed(backend, c, rows, room_for_parts);
  backend.MatMul(ViewOf(x, rows, c.shape.cols, c.shape.cols), packed.linear,
                 ViewOf(out, rows, c.shape.rows, c.shape.rows));
  packed.Wait();
  return out;
}

TEST(CudaGemmParts, FollowFromTheWeightsShape) {
  for (const auto& [rows, depth, count, steps] : {std::tuple{4096, 4096, 4, 32},
                                                  {4096, 14336, 4, 112},
                                                  {6144, 4096, 4, 32},
                                                  {28672, 4096, 1, 128},
                                                  {768, 4096, 8, 16},
                                                  {8192, 8192, 2, 128},
                                                  {40, 2112, 8, 9},
                                                  {40, 960, 2, 15},
                                                  {40, 448, 1, 14}}) {
    const cuda::GemmParts parts = cuda::GemmPartsOf(rows, depth);
    EXPECT_EQ(parts.count, count) << rows << " x " << depth;
    EXPECT_EQ(parts.steps, steps) << rows << " x " << depth;
  }
  for (int64_t depth = 64; depth < 9000; depth += 64) {
    const cuda::GemmParts parts = cuda::GemmPartsOf(100, depth);
    const int64_t steps = depth / cuda::kGemmStepInputs;
    EXPECT_LE(parts.count, cuda::kMaxGemmParts);
    EXPECT_LT((parts.count - 1) * parts.steps, steps) << depth;
    EXPECT_GE(parts.count * parts.steps, steps) << depth;
  }
}

TEST(CudaGemmParts, AreForBlocksOfTheirOwnWhereMultiprocessorsAreIdle) {
  const cuda::GemmParts o = cuda::GemmPartsOf(4096, 4096);
  EXPECT_TRUE(cuda::TakesLessInParts(o, 32, 132));
  EXPECT_TRUE(cuda::TakesLessInParts(o, 64, 132));
  EXPECT_FALSE(cuda::TakesLessInParts(o, 128, 132)) << "they are not idle";
  EXPECT_FALSE(cuda::TakesLessInParts(o, 32, 32));
  EXPECT_FALSE(cuda::TakesLessInParts(cuda::GemmPartsOf(28672, 4096), 224, 132)) << "one part";
  EXPECT_FALSE(cuda::TakesLessInParts(cuda::GemmPartsOf(768, 512), 6, 132)) << "short";
}

TEST(CudaGemmParts, GiveTheProductsOfTheReference) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  for (const WeightFormat format : kQuantizedFormats) {
    const ProductCase c = CaseOf(format, 40, 2100);  // 8 parts, the last shorter
    const std::vector<float> want = Product(*NewReferenceBackend(*host), c, 70, false);
    const std::vector<float> got =
        OnAllSchedules([&](Backend& backend) { return Product(backend, c, 70, true); }, true);
    EXPECT_LT(RelativeError(got, want), kTolerance) << c;
  }
}

// Where there is no room for sums of parts, and of more tokens, blocks have all parts.
TEST(CudaGemmParts, ARowsBitsAreThoseOfAnyOtherStep) {
  for (const int64_t cols : {960, 1100, 2100}) {  // 2, 4 and 8 parts
    const ProductCase c = CaseOf(WeightFormat::kInt4, 40, cols);
    const std::vector<float> want =
        OnAllSchedules([&](Backend& backend) { return Product(backend, c, 511, false); }, true);
    for (const int rows : {65, 128, 200}) {
      const std::vector<float> got =
          OnAllSchedules([&](Backend& backend) { return Product(backend, c, rows, true); }, true);
      ExpectSameBits(got, {want.begin(), want.begin() + static_cast<int64_t>(got.size())});
    }
  }
}

}  // namespace
}  // namespace bulkhead
