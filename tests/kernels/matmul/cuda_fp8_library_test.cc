// Products in fp8 by a library, over one that answers as cuBLASLt does: that they are those of the
// stored codes and of inputs rounded to E4M3, and what stays in bf16.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/matmul/cuda.h"
#include "memory/fp8.h"
#include "tests/kernels/cuda/fake_cublas_lt_use.h"
#include "tests/kernels/cuda/library_products.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<CudaDriver> Hopper(bool late, int capability_major = 9) {
  return std::make_unique<emulator::EmulatedCudaDriver>(emulator::DeviceOptions{
      .total_bytes = int64_t{160} << 20, .capability_major = capability_major, .late = late});
}

constexpr int kScaleGroup = 128;

ProductCase Fp8Case(int64_t rows, int64_t cols, std::vector<int64_t> borders = {},
                    int group = kScaleGroup) {
  if (borders.empty()) borders = {0, cols};
  return {{rows, cols, WeightFormat::kFp8, std::move(borders), {group, 0, 0, ScaleFormat::kF32}},
          true};
}

// How a product was made.
enum class By { kKernel, kLibraryInBf16, kLibraryInFp8 };

class Fp8Products : public LibraryProducts {
 public:
  explicit Fp8Products(const ProductCase& c, bool late = true, bool in_fp8 = true, int major = 9)
      : LibraryProducts(Hopper(late, major), true, c, in_fp8) {}

  std::pair<std::vector<float>, By> Multiply(int64_t rows) {
    return MadeBy([&] { return LibraryProducts::Multiply(rows); });
  }
  std::pair<std::vector<float>, By> MultiplyGated(int64_t rows, DType out) {
    return MadeBy([&] { return LibraryProducts::MultiplyGated(rows, out); });
  }
  By Way(int64_t rows) { return Multiply(rows).second; }

 private:
  template <typename Make>
  std::pair<std::vector<float>, By> MadeBy(const Make& make) {
    const int before = FakeCublasLt().products;
    const int in_fp8_before = FakeCublasLt().fp8_products;
    std::vector<float> made = make();
    const bool by_library = FakeCublasLt().products > before;
    return {std::move(made), !by_library                                   ? By::kKernel
                             : FakeCublasLt().fp8_products > in_fp8_before ? By::kLibraryInFp8
                                                                           : By::kLibraryInBf16};
  }
};

// Each group of 128 inputs of a row rounded to its scale times a number of E4M3.
std::vector<float> InE4m3(std::vector<float> x, int64_t cols) {
  for (int64_t row = 0; row < std::ssize(x); row += cols) {
    for (int64_t begin = 0; begin < cols; begin += kScaleGroup) {
      const int64_t end = std::min(begin + kScaleGroup, cols);
      float largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[row + i]));
      const float scale = largest / 448;
      for (int64_t i = begin; i < end; ++i) {
        x[row + i] = F32OfE4m3(E4m3OfF32(x[row + i], scale)) * scale;
      }
    }
  }
  return x;
}

const ProductCase kWithShortGroup = Fp8Case(48, 320);

class Fp8LibraryTest : public GemmLibraryTest {};

// E4M3 has 3 bits of fraction: of a number in [1, 2) the step is 1/8, the error as a root of
// squares 1/8 / sqrt(12), and relative to such numbers 0.024; sums of independent errors keep it.
constexpr double kLeastError = 0.015;
constexpr double kMostError = 0.035;
constexpr double kSumTolerance = 1e-5;  // of the same products in another order

TEST_F(Fp8LibraryTest, MultipliesCodesWithInputsRoundedToE4m3) {
  const std::vector<ProductCase> cases = {
      kWithShortGroup, Fp8Case(20, 512, {0, 256, 512}),  // slices end where groups do
      Fp8Case(64, 200),                                  // filled up to 256 inputs
      Fp8Case(16, 130),                                  // rows of x are not read four at a time
  };
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    for (const bool late : {false, true}) {
      Fp8Products products(c, late);
      ASSERT_TRUE(products.WarmUp().ok());
      EXPECT_NE(products.Way(64), By::kLibraryInFp8);
      for (const int64_t rows : {65, 128, 300, 640}) {
        const auto [product, way] = products.Multiply(rows);
        EXPECT_EQ(way, By::kLibraryInFp8) << rows;
        const std::vector<float> rounded = InE4m3(products.Values(), c.shape.cols);
        EXPECT_LT(RelativeError(product, ByReference(c, rounded, rows)), kSumTolerance) << rows;
        const double error = RelativeError(product, ByReference(c, products.Values(), rows));
        EXPECT_GT(error, kLeastError) << rows;
        EXPECT_LT(error, kMostError) << rows;
      }
    }
  }
}

TEST_F(Fp8LibraryTest, WritesGatesAndUpsInBf16) {
  for (const bool late : {false, true}) {
    Fp8Products products(kWithShortGroup, late);
    ASSERT_TRUE(products.WarmUpGated().ok());
    for (const DType out : {DType::kF32, DType::kBF16}) {
      const auto [gated, way] = products.MultiplyGated(300, out);
      EXPECT_EQ(way, By::kLibraryInFp8);
      EXPECT_TRUE(FakeCublasLt().last_out_bf16);
      const std::vector<float> rounded = InE4m3(products.Values(), 320);
      EXPECT_LT(RelativeError(gated, GatedByReference(kWithShortGroup, rounded, 300)), 1e-2);
    }
  }
}

TEST_F(Fp8LibraryTest, ARowsBitsDependOnTheBucketAlone) {
  Fp8Products products(kWithShortGroup);
  ASSERT_TRUE(products.WarmUp().ok());
  const std::vector<float> whole = products.Multiply(256).first;
  for (const int64_t rows : {129, 200, 255}) {
    const auto [product, way] = products.Multiply(rows);
    EXPECT_EQ(way, By::kLibraryInFp8);
    EXPECT_EQ(FakeCublasLt().last_tokens, 256);
    EXPECT_EQ(product, std::vector<float>(whole.begin(), whole.begin() + rows * 48));
  }
}

TEST_F(Fp8LibraryTest, UnpacksAWeightInPieces) {
  for (const int64_t outputs : {48, 36}) {
    const ProductCase c = Fp8Case(outputs, 320);
    Fp8Products multiplier(c);
    ASSERT_TRUE(multiplier.WarmUp().ok());
    const std::vector<float> whole = multiplier.Multiply(600).first;
    CudaProducts products(multiplier.driver(), std::move(NewCublasLt(multiplier.driver())).value(),
                          16 * 320 * 2, /*in_fp8=*/true);
    BumpAllocator counted;
    products.LayOut(LimitsFor(c.shape), counted);
    const Buffer workspace = std::move(multiplier.device().Allocate(counted.used_bytes())).value();
    BumpAllocator allocator(workspace.data());
    products.SetScratch(products.LayOut(LimitsFor(c.shape), allocator));
    ASSERT_TRUE(
        products.WarmUp(multiplier.X(kMaxTokens), multiplier.linear(), multiplier.Out(kMaxTokens))
            .ok());
    const int before = FakeCublasLt().fp8_products;
    products.MatMul(multiplier.X(600), multiplier.linear(), multiplier.Out(600));
    EXPECT_EQ(multiplier.Product(600), whole);
    EXPECT_EQ(FakeCublasLt().fp8_products - before, 3) << "pieces of 16 outputs";
  }
}

TEST_F(Fp8LibraryTest, OtherWeightsAndGpusStayInBf16) {
  struct Case {
    ProductCase product;
    bool in_fp8 = true;
    int major = 9;
    bool warns = false;
  };
  const std::vector<Case> cases = {
      {kWithShortGroup, /*in_fp8=*/false},
      {kWithShortGroup, true, /*major=*/8, true},
      {Fp8Case(48, 320, {}, 64)},
      {Fp8Case(48, 320, {0, 160, 320})},  // cuts a group
      {Fp8Case(48, 64)},
      {{{48, 320, WeightFormat::kInt8, {0, 320}, {128, 0, 0}}, true}},
      {{{48, 320, WeightFormat::kFp8, {0, 320}, {128, 64, 0, ScaleFormat::kF32}}, true}},
      {{{48, 320, WeightFormat::kFp8, {0, 320}, {128, 0, 3, ScaleFormat::kF32}}, true}},
      {Fp8Case(42, 320), true, 9, true},  // outputs are no multiple of 4
  };
  for (const auto& [c, in_fp8, major, warns] : cases) {
    SCOPED_TRACE(testing::Message() << c);
    testing::internal::CaptureStderr();
    Fp8Products products(c, true, in_fp8, major);
    ASSERT_TRUE(products.WarmUp().ok());
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("in bf16") != std::string::npos, warns) << said;
    const auto [product, way] = products.Multiply(300);
    EXPECT_EQ(way, By::kLibraryInBf16);
    EXPECT_LT(RelativeError(product, ByReference(c, products.Values(), 300)), 5e-3);
  }
}

TEST_F(Fp8LibraryTest, AnotherWeightOfThatManyRowsAndInputsDoesNotBringItToFp8) {
  const ProductCase in_64s = Fp8Case(48, 320, {}, 64);
  Fp8Products products(in_64s);
  ASSERT_TRUE(products.WarmUp().ok());
  const int in_fp8 = FakeCublasLt().fp8_products;
  ASSERT_TRUE(products.WarmUpAnother(kWithShortGroup).ok());
  EXPECT_GT(FakeCublasLt().fp8_products, in_fp8);
  const auto [product, way] = products.Multiply(300);
  EXPECT_EQ(way, By::kLibraryInBf16);
  EXPECT_LT(RelativeError(product, ByReference(in_64s, products.Values(), 300)), 5e-3);
}

TEST_F(Fp8LibraryTest, WhatTheLibraryRefusesStaysInBf16) {
  FakeCublasLt().fault = FakeCublasLtFault::kKnowsNoWay;
  FakeCublasLt().fault_of_fp8 = true;
  FakeCublasLt().unknown_tokens = 256;
  Fp8Products in_bf16(kWithShortGroup, true, /*in_fp8=*/false);
  ASSERT_TRUE(in_bf16.WarmUp().ok());
  Fp8Products products(kWithShortGroup);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(products.WarmUp().ok());
  ASSERT_TRUE(products.WarmUpGated().ok());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              HasSubstr("no algorithm to multiply 256 tokens of 320 inputs with 48 outputs "
                        "in fp8 (cublasLtMatmulAlgoGetHeuristic: not supported); multiplying in "
                        "bf16"));
  EXPECT_EQ(said.find("in bf16"), said.rfind("in bf16")) << "once";
  EXPECT_EQ(products.Multiply(200),
            std::make_pair(in_bf16.Multiply(200).first, By::kLibraryInBf16));
  EXPECT_EQ(products.Way(300), By::kLibraryInFp8);
}

TEST_F(Fp8LibraryTest, ProductsThatAreNotNearThoseInBf16AreNotUsed) {
  FakeCublasLt().fault = FakeCublasLtFault::kScalesByRow;
  Fp8Products products(kWithShortGroup);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(products.WarmUp().ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("products of 128 tokens in fp8 with weights of 48 x 320 are not near those "
                        "in bf16 on this GPU: going on in bf16"));
  for (const int64_t rows : {128, 300}) EXPECT_EQ(products.Way(rows), By::kLibraryInBf16);
}

TEST_F(Fp8LibraryTest, ProductsThatDoNotWaitForTheKernelBeforeThemAreNotUsed) {
  FakeCublasLt().fault = FakeCublasLtFault::kDoesNotWait;
  FakeCublasLt().fault_of_fp8 = true;
  Fp8Products products(kWithShortGroup);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(products.WarmUp().ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("outputs in fp8 before the kernel ahead has written them; multiplying in "
                        "bf16"));
  EXPECT_EQ(products.Way(300), By::kLibraryInBf16);
}

// In a process of its own: the version is asked for once.
class OldGemmLibraryDeathTest : public testing::Test {
 protected:
  static void WarmUp() {
    FakeCublasLt().version = 120803;
    Fp8Products products(kWithShortGroup);
    const bool is_ok = products.WarmUp().ok() && products.Way(300) == By::kLibraryInBf16;
    std::exit(is_ok ? 0 : 1);
  }
};

TEST_F(OldGemmLibraryDeathTest, StaysInBf16) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      WarmUp(), testing::ExitedWithCode(0),
      "--activation-dtype fp8: products stay in bf16: .* has version 120803: it needs 120900");
}

}  // namespace
}  // namespace bulkhead
