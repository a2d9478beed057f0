// Products of many tokens by a library, over one that answers as cuBLASLt does: what is asked of
// it, that its products are right, and who multiplies when it cannot.
#include "kernels/cuda/gemm_library.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/bench/gpu_bench.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/matmul/cuda.h"
#include "memory/cuda_device.h"
#include "tests/kernels/cuda/fake_cublas_lt_use.h"
#include "tests/kernels/cuda/library_products.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 5e-3;  // norm(got - want) / norm(want)

std::unique_ptr<CudaDriver> Emulated(bool late) {
  return std::make_unique<emulator::EmulatedCudaDriver>(
      emulator::DeviceOptions{.total_bytes = int64_t{160} << 20, .late = late});
}

class Multiplier : public LibraryProducts {
 public:
  explicit Multiplier(const ProductCase& c, bool late = true)
      : LibraryProducts(Emulated(late), true, c) {}
  // The product of the first rows; whether the library made it.
  std::pair<std::vector<float>, bool> Multiply(int64_t rows) {
    const int before = FakeCublasLt().products;
    std::vector<float> product = LibraryProducts::Multiply(rows);
    return {std::move(product), FakeCublasLt().products > before};
  }
};

const ProductCase kPlain{LinearShape::Whole(40, 70, DType::kBF16)};
const ProductCase kInParts{{130, 1100, WeightFormat::kInt4, {0, 1100}, {128, 0, 0}}, true};  // 4
const ProductCase kInt4{{48, 128, WeightFormat::kInt4, {0, 64, 128}, {32, 0, 0}}, true};

TEST_F(GemmLibraryTest, MultipliesAsTheReferenceDoes) {
  const std::vector<ProductCase> cases = {
      kPlain,
      {LinearShape::Whole(33, 7, DType::kF16)},
      {LinearShape::Whole(64, 128, DType::kBF16)},
      {{33, 70, WeightFormat::kInt8, {0, 70}, {32, 0, 0}}, true},
      {{64, 128, WeightFormat::kInt8, {0, 128}, {128, 0, 0}}},
      kInt4,
      // Act order; its depth leaves room for 560 rows at once.
      {{40, 640, WeightFormat::kInt4, {0, 640}, {32, 0, 3}}, true},
  };
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    for (const bool late : {false, true}) {
      Multiplier multiplier(c, late);
      ASSERT_TRUE(multiplier.WarmUp().ok());
      const bool codes = IsQuantized(c.shape.format);
      for (const int64_t rows : {1, 3, 16, 64, 65, 300, 511, 512, 640}) {
        const auto [product, by_library] = multiplier.Multiply(rows);
        EXPECT_EQ(by_library, rows >= (codes ? 65 : 2)) << rows;
        EXPECT_LT(RelativeError(product, ByReference(c, multiplier.Values(), rows)), kTolerance)
            << rows;
      }
    }
  }
}

TEST_F(GemmLibraryTest, WritesGatesAndUpsInBf16) {
  struct Case {
    ProductCase product;
    bool in_bf16;
  };
  const std::vector<Case> cases = {
      {{LinearShape::Whole(64, 70, DType::kBF16)}, true},
      {kInt4, true},
      {{LinearShape::Whole(64, 70, DType::kF16)}, false},
      // Rows of 20 gates are not read eight at a time.
      {kPlain, false},
  };
  for (const auto& [c, in_bf16] : cases) {
    SCOPED_TRACE(testing::Message() << c);
    for (const bool late : {false, true}) {
      Multiplier multiplier(c, late);
      ASSERT_TRUE(multiplier.WarmUpGated().ok());
      for (const int64_t rows : {1, 3, 64, 65, 300}) {
        const int before = FakeCublasLt().products;
        const DType out = in_bf16 && rows % 2 == 0 ? DType::kBF16 : DType::kF32;
        const std::vector<float> gated = multiplier.MultiplyGated(rows, out);
        const bool by_library = FakeCublasLt().products > before;
        EXPECT_EQ(by_library, rows >= (IsQuantized(c.shape.format) ? 65 : 2)) << rows;
        EXPECT_EQ(by_library && FakeCublasLt().last_out_bf16, by_library && in_bf16) << rows;
        EXPECT_LT(RelativeError(gated, GatedByReference(c, multiplier.Values(), rows)), 1e-2)
            << rows;
      }
    }
  }
}

TEST_F(GemmLibraryTest, GatesAndUpsAreInF32WhereTheLibraryWasNotWarmedUpForOthers) {
  const ProductCase c{LinearShape::Whole(64, 70, DType::kBF16)};
  Multiplier multiplier(c);
  ASSERT_TRUE(multiplier.WarmUp().ok());
  multiplier.MultiplyGated(200, DType::kF32);
  EXPECT_FALSE(FakeCublasLt().last_out_bf16) << "a weight with adapters has no other";
  ASSERT_TRUE(multiplier.WarmUpGated().ok());
  const std::vector<float> whole = multiplier.MultiplyGated(256, DType::kF32);
  EXPECT_TRUE(FakeCublasLt().last_out_bf16);
  const std::vector<float> fewer = multiplier.MultiplyGated(200, DType::kF32);
  EXPECT_EQ(fewer, std::vector<float>(whole.begin(), whole.begin() + 200 * 32));
  multiplier.Multiply(200);
  EXPECT_FALSE(FakeCublasLt().last_out_bf16) << "MatMul's own output";
  multiplier.MultiplyGated(200, DType::kF32);
  const int before = FakeCublasLt().products;
  multiplier.MultiplyGated(200, DType::kF32, multiplier.other());
  EXPECT_EQ(FakeCublasLt().products, before) << "another weight of the shape";
}

TEST_F(GemmLibraryTest, ARowsBitsDependOnTheBucketAlone) {
  Multiplier multiplier(kPlain);
  ASSERT_TRUE(multiplier.WarmUp().ok());
  std::vector<float> whole = multiplier.Multiply(256).first;
  for (const int64_t rows : {129, 200, 255}) {
    const std::vector<float> product = multiplier.Multiply(rows).first;
    EXPECT_EQ(FakeCublasLt().last_tokens, 256);
    EXPECT_EQ(product, std::vector<float>(whole.begin(), whole.begin() + rows * kPlain.shape.rows));
  }
  for (const auto& [rows, bucket] : {std::pair{2, 2}, {3, 4}, {9, 16}, {64, 64}, {65, 128}}) {
    multiplier.Multiply(rows);
    EXPECT_EQ(FakeCublasLt().last_tokens, bucket);
  }
  multiplier.Multiply(620);
  EXPECT_EQ(FakeCublasLt().last_tokens, kMaxTokens) << "no bucket is larger than a step";
}

// The number of multiprocessors says who computes the parts of the depth of a product of codes, and
// the workspace's layout where their sums are: neither changes a bit.
TEST_F(GemmLibraryTest, PartsOfTheDepthAreTheSameBitsOnAnyGpu) {
  std::map<int64_t, std::vector<float>> want;
  for (const bool with_library : {false, true}) {
    for (const int num_sms : {1, 4, 132}) {
      auto driver = std::make_unique<emulator::EmulatedCudaDriver>(
          emulator::DeviceOptions{.total_bytes = int64_t{160} << 20, .num_sms = num_sms});
      const emulator::EmulatedCudaDriver& gpu = *driver;
      LibraryProducts products(std::move(driver), with_library, kInParts);
      for (const int64_t rows : {65, 128, 200, 511}) {
        const int64_t before = gpu.launches();
        const std::vector<float> product = products.Multiply(rows);
        EXPECT_EQ(gpu.launches() - before, num_sms == 132 ? 3 : 2) << "gathers, multiplies, adds";
        if (!want.contains(rows)) want[rows] = product;
        EXPECT_EQ(product, want[rows]) << rows << " rows, " << num_sms << " multiprocessors";
        EXPECT_TRUE(std::equal(want[65].begin(), want[65].end(), product.begin())) << rows;
      }
    }
  }
}

TEST_F(GemmLibraryTest, UnpacksAWeightInPieces) {
  for (const int64_t outputs : {48, 40, 33}) {
    ProductCase c = kInt4;
    c.shape.rows = outputs;
    Multiplier multiplier(c);
    ASSERT_TRUE(multiplier.WarmUp().ok());
    const auto [whole, by_library] = multiplier.Multiply(600);
    EXPECT_TRUE(by_library);
    CudaProducts products(multiplier.driver(), std::move(NewCublasLt(multiplier.driver())).value(),
                          16 * c.shape.cols * 2);
    BumpAllocator counted;
    products.LayOut(LimitsFor(c.shape), counted);
    const Buffer workspace = std::move(multiplier.device().Allocate(counted.used_bytes())).value();
    BumpAllocator allocator(workspace.data());
    products.SetScratch(products.LayOut(LimitsFor(c.shape), allocator));
    ASSERT_TRUE(
        products.WarmUp(multiplier.X(kMaxTokens), multiplier.linear(), multiplier.Out(kMaxTokens))
            .ok());
    const int before = FakeCublasLt().products;
    products.MatMul(multiplier.X(600), multiplier.linear(), multiplier.Out(600));
    ASSERT_TRUE(multiplier.device().Synchronize().ok());
    EXPECT_EQ(FakeCublasLt().products - before, 3) << "pieces of 16 outputs";
    EXPECT_EQ(multiplier.Product(600), whole);

    const auto out = [&](int64_t rows) {
      return MatrixView(multiplier.Out(rows).data(), DType::kBF16, rows, outputs, outputs + 1);
    };
    ASSERT_TRUE(
        products.WarmUp(multiplier.X(kMaxTokens), multiplier.linear(), out(kMaxTokens)).ok());
    ASSERT_TRUE(products.MatMulInBf16(multiplier.X(600), multiplier.linear(), out(600)));
    std::vector<uint16_t> bits(600 * (outputs + 1));
    multiplier.device().CopyToHost(out(600).data(), bits.data(),
                                   static_cast<int64_t>(bits.size()) * 2);
    ASSERT_TRUE(multiplier.device().Synchronize().ok());
    for (int64_t i = 0; i < 600 * outputs; ++i) {
      ASSERT_EQ(bits[i / outputs * (outputs + 1) + i % outputs], Bf16OfF32(whole[i])) << i;
    }
  }
}

TEST_F(GemmLibraryTest, GetsNothingThatWasNotWarmedUp) {
  Multiplier multiplier(kPlain);
  EXPECT_FALSE(multiplier.Multiply(300).second);
  ASSERT_TRUE(multiplier.WarmUp().ok());
  EXPECT_TRUE(multiplier.Multiply(300).second);
  const int warmed_up = FakeCublasLt().products;
  ASSERT_TRUE(multiplier.WarmUp().ok());
  EXPECT_EQ(FakeCublasLt().products, warmed_up)
      << "a second weight of the shape runs nothing again";
}

TEST_F(GemmLibraryTest, WritesNoRowThatTheOutputHasNoRoomFor) {
  Multiplier multiplier(kPlain);
  ASSERT_TRUE(multiplier.WarmUp(90).ok());
  EXPECT_TRUE(multiplier.Multiply(40).second);
  EXPECT_EQ(FakeCublasLt().last_tokens, 64);
  EXPECT_TRUE(multiplier.Multiply(70).second);
  EXPECT_EQ(FakeCublasLt().last_tokens, 90) << "a bucket of 128 is more than was warmed up";
  EXPECT_FALSE(multiplier.Multiply(91).second);
}

TEST_F(GemmLibraryTest, OurKernelMultipliesWhatTheLibraryCannot) {
  const std::vector<float> want = [] {
    Multiplier multiplier(kPlain);
    return multiplier.Multiply(200).first;
  }();
  FakeCublasLt().fault = FakeCublasLtFault::kKnowsNoWay;
  FakeCublasLt().unknown_tokens = 256;
  {
    Multiplier multiplier(kPlain);
    ASSERT_TRUE(multiplier.WarmUp().ok());
    EXPECT_EQ(multiplier.Multiply(200), std::make_pair(want, false));
    EXPECT_TRUE(multiplier.Multiply(300).second);
  }
  FakeCublasLt().fault = FakeCublasLtFault::kWantsMore;
  Multiplier multiplier(kPlain);
  ASSERT_TRUE(multiplier.WarmUp().ok());
  EXPECT_EQ(multiplier.Multiply(200), std::make_pair(want, false));
  EXPECT_FALSE(multiplier.Multiply(300).second);
}

TEST_F(GemmLibraryTest, ALibraryThatDoesNotWaitForTheKernelBeforeItIsNotUsed) {
  for (const ProductCase& c : {kPlain, kInt4}) {
    FakeCublasLt().fault = FakeCublasLtFault::kDoesNotWait;
    Multiplier multiplier(c);
    testing::internal::CaptureStderr();
    ASSERT_TRUE(multiplier.WarmUp().ok());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("before the kernel ahead has written them; using our own kernel"));
    const auto [product, by_library] = multiplier.Multiply(600);
    EXPECT_FALSE(by_library);
    const int before = FakeCublasLt().products;
    ASSERT_TRUE(multiplier.WarmUpGated().ok());
    const int tried = FakeCublasLt().products;
    multiplier.MultiplyGated(600, DType::kF32);
    EXPECT_EQ(FakeCublasLt().products, tried);
    EXPECT_GT(tried, before);
    EXPECT_LT(RelativeError(product, ByReference(c, multiplier.Values(), 600)), kTolerance);
  }
}

TEST_F(GemmLibraryTest, AFailureIsTheDevicesFault) {
  Multiplier multiplier(kPlain);
  FakeCublasLt().fault = FakeCublasLtFault::kFailsToEnqueue;
  EXPECT_THAT(multiplier.WarmUp().message(), HasSubstr("cublasLtMatmul: an error"));
  EXPECT_FALSE(multiplier.device().Synchronize().ok()) << "the device is lost";
}

TEST_F(GemmLibraryTest, ALibraryThatDoesNotStartSaysWhatToDo) {
  FakeCublasLt().fault = FakeCublasLtFault::kDoesNotStart;
  emulator::EmulatedCudaDriver driver({});
  const absl::Status status = NewCublasLt(driver).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("does not start: cublasLtCreate: an error"));
  EXPECT_THAT(status.message(), HasSubstr("BULKHEAD_CUBLASLT= (empty)"));
}

TEST_F(GemmLibraryTest, IsMeasuredBesideOurKernelsAndIsTheirCeiling) {
  emulator::EmulatedCudaDriver driver({});
  std::vector<KernelResult> results;
  const absl::Status status =
      MeasureGpuKernels(driver, true, {.filter = "library/o/", .quick = true},
                        [&](const KernelResult& result) { results.push_back(result); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(results.size(), 6U);  // counts of tokens
  for (const KernelResult& result : results) EXPECT_GT(result.peak_gop_per_s, 0) << result.name;
}

TEST_F(GemmLibraryTest, TheWorkspaceHasRoomForItAndForWhatItMayUnpack) {
  emulator::EmulatedCudaDriver driver({});
  const std::unique_ptr<CudaDevice> device = std::move(CudaDevice::New(driver, 0)).value();
  const auto without = NewCudaBackend(*device, driver);
  const auto with = NewCudaBackend(*device, driver, std::move(NewCublasLt(driver)).value());
  const auto more = [&](const ProductCase& c, int max_tokens) {
    const StepLimits limits = LimitsFor(c.shape, max_tokens);
    return with->WorkspaceBytes(limits, kHeads) - without->WorkspaceBytes(limits, kHeads);
  };
  EXPECT_EQ(more(kPlain, 1), int64_t{32} << 20);
  EXPECT_EQ(more(kInt4, 64), int64_t{32} << 20);
  EXPECT_EQ(more(kInt4, 65), int64_t{96} << 20);
  // Sums of parts lie in it; without a library they need memory of their own.
  EXPECT_EQ(more(kInParts, 64), int64_t{32} << 20);
  EXPECT_EQ(more(kInParts, 100), (int64_t{96} << 20) - int64_t{100} * 192 * 128 * 4);
  EXPECT_EQ(more(kInParts, 511), int64_t{64} << 20);
}

TEST_F(GemmLibraryTest, IsNamedWithItsVersion) { EXPECT_EQ(*CublasLtName(), "cuBLASLt 13.1.0"); }

// In a process of its own: the library is looked for once.
class NoGemmLibraryDeathTest : public testing::Test {
 protected:
  static void TellWhy(const char* name) {
    setenv("BULKHEAD_CUBLASLT", name, 1);
    std::fprintf(stderr, "%s\n", std::string(CublasLtName().status().message()).c_str());
    std::exit(0);
  }
};

TEST_F(NoGemmLibraryDeathTest, SaysWhyThereIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(TellWhy(""), testing::ExitedWithCode(0), "BULKHEAD_CUBLASLT is set and empty");
  EXPECT_EXIT(TellWhy("/nowhere/libcublasLt.so"), testing::ExitedWithCode(0),
              "cuBLASLt is not found .*nowhere.*name it with BULKHEAD_CUBLASLT=");
  EXPECT_EXIT(TellWhy("libm.so.6"), testing::ExitedWithCode(0),
              "libm.so.6 is no cuBLASLt that can be used: it has no cublasLtGetVersion");
}

}  // namespace
}  // namespace bulkhead
