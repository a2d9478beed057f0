// Products of many tokens by the cuBLASLt of this machine against our own kernels: near them, the
// same bits each time, and no memory taken once they were warmed up.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/library_products.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 1e-3;  // norm(got - want) / norm(want): both sum products of 16 bits
// Theirs are rounded to bf16.
constexpr double kGatedTolerance = 1e-2;
constexpr double kLeastGatedError = 5e-4;

class ProductsOnGpu : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ProductsOnGpu,
    testing::Values(
        ProductCase{LinearShape::Whole(1024, 4096, DType::kBF16)},
        ProductCase{LinearShape::Whole(1000, 328, DType::kF16)},
        ProductCase{{1024, 4096, WeightFormat::kInt8, {0, 4096}, {128, 0, 0}}},
        ProductCase{{6000, 8192, WeightFormat::kInt4, {0, 8192}, {128, 0, 0}}},  // pieces
        ProductCase{{1000, 328, WeightFormat::kInt4, {0, 164, 328}, {32, 0, 5}}, true}));

TEST_P(ProductsOnGpu, OfTheLibraryAreThoseOfOurKernels) {
  if (!CublasLtName().ok()) GTEST_SKIP() << CublasLtName().status();
  LibraryProducts theirs(std::move(DevicesUnderTest().front()), true, GetParam());
  LibraryProducts ours(std::move(DevicesUnderTest().front()), false, GetParam());
  ASSERT_TRUE(theirs.WarmUp().ok());
  ours.Multiply(kMaxTokens);
  theirs.Multiply(kMaxTokens);
  const int64_t free_bytes = theirs.driver().Memory()->free_bytes;
  for (const int64_t rows : {16, 17, 64, 65, 128, 300, 512, 640}) {
    const std::vector<float> product = theirs.Multiply(rows);
    EXPECT_LT(RelativeError(product, ours.Multiply(rows)), kTolerance) << rows << " rows";
    EXPECT_EQ(theirs.Multiply(rows), product) << rows << " rows";
  }
  EXPECT_EQ(theirs.driver().Memory()->free_bytes, free_bytes);
}

TEST_P(ProductsOnGpu, GatesAndUpsOfTheLibraryAreNearThoseOfOurKernels) {
  if (!CublasLtName().ok()) GTEST_SKIP() << CublasLtName().status();
  LibraryProducts theirs(std::move(DevicesUnderTest().front()), true, GetParam());
  LibraryProducts ours(std::move(DevicesUnderTest().front()), false, GetParam());
  ASSERT_TRUE(theirs.WarmUpGated().ok());
  const LinearShape& shape = GetParam().shape;
  const bool in_bf16 = shape.format != WeightFormat::kF16 && shape.rows % 16 == 0;
  ours.MultiplyGated(kMaxTokens, DType::kF32);
  theirs.MultiplyGated(kMaxTokens, DType::kF32);
  const int64_t free_bytes = theirs.driver().Memory()->free_bytes;
  for (const int64_t rows : {16, 65, 640}) {
    const std::vector<float> gated = theirs.MultiplyGated(rows, DType::kF32);
    const double error = RelativeError(gated, ours.MultiplyGated(rows, DType::kF32));
    EXPECT_LT(error, kGatedTolerance) << rows;
    if (rows > 64 && in_bf16) {
      EXPECT_GT(error, kLeastGatedError) << "not rounded";
    }
    EXPECT_EQ(theirs.MultiplyGated(rows, DType::kF32), gated) << rows << " rows";
  }
  EXPECT_EQ(theirs.driver().Memory()->free_bytes, free_bytes);
}

// Of what rounding inputs to E4M3 changes, 0.024 of the product (tests/kernels/matmul/
// cuda_fp8_library_test.cc): in bf16 it would be next to nothing, with scales out of place far
// more.
constexpr double kLeastFp8Error = 0.015;
constexpr double kMostFp8Error = 0.035;

class Fp8ProductsOnGpu : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, Fp8ProductsOnGpu,
    testing::Values(
        ProductCase{{1024, 4096, WeightFormat::kFp8, {0, 4096}, {128, 0, 0, ScaleFormat::kF32}},
                    true},
        ProductCase{{6000, 8192, WeightFormat::kFp8, {0, 8192}, {128, 0, 0, ScaleFormat::kF32}},
                    true},  // pieces
        ProductCase{{1000, 320, WeightFormat::kFp8, {0, 320}, {128, 0, 0, ScaleFormat::kF32}},
                    true}));

TEST_P(Fp8ProductsOnGpu, OfTheLibraryAreNearThoseOfOurKernels) {
  std::unique_ptr<CudaDriver> driver = std::move(DevicesUnderTest().front());
  if (!CublasLtName().ok()) GTEST_SKIP() << CublasLtName().status();
  const absl::Status has_fp8 = (*NewCublasLt(*driver))->CheckFp8();
  if (!has_fp8.ok()) GTEST_SKIP() << has_fp8;
  if (driver->properties().capability() != 90) GTEST_SKIP() << "not of compute capability 9.0";
  LibraryProducts theirs(std::move(driver), true, GetParam(), /*in_fp8=*/true);
  LibraryProducts ours(std::move(DevicesUnderTest().front()), false, GetParam());
  ASSERT_TRUE(theirs.WarmUp().ok());
  ASSERT_TRUE(theirs.WarmUpGated().ok());
  ours.Multiply(kMaxTokens);
  theirs.Multiply(kMaxTokens);
  const int64_t free_bytes = theirs.driver().Memory()->free_bytes;
  for (const int64_t rows : {65, 128, 300, 512, 640}) {
    const std::vector<float> product = theirs.Multiply(rows);
    const double error = RelativeError(product, ours.Multiply(rows));
    EXPECT_GT(error, kLeastFp8Error) << rows << " rows: in bf16";
    EXPECT_LT(error, kMostFp8Error) << rows << " rows";
    EXPECT_EQ(theirs.Multiply(rows), product) << rows << " rows";
    const std::vector<float> gated = theirs.MultiplyGated(rows, DType::kF32);
    EXPECT_LT(RelativeError(gated, ours.MultiplyGated(rows, DType::kF32)), 3 * kMostFp8Error);
    EXPECT_EQ(theirs.MultiplyGated(rows, DType::kF32), gated) << rows << " rows";
  }
  EXPECT_EQ(theirs.driver().Memory()->free_bytes, free_bytes);
}

}  // namespace
}  // namespace bulkhead
