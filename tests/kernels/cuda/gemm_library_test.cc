// Products of many tokens by a library, over one that answers as cuBLASLt does: what is asked of
// it, that its products are right, and who multiplies when it cannot.
#include "kernels/cuda/gemm_library.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/products.h"
#include "memory/cuda_device.h"
#include "tests/kernels/cuda/fake_cublas_lt_use.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxTokens = 640;
constexpr double kTolerance = 5e-3;  // norm(got - want) / norm(want)
constexpr int32_t kHead = 0;
constexpr HeadLayout kHeads{1, 1, 16, &kHead};

StepLimits LimitsFor(const LinearShape& shape, int max_tokens = kMaxTokens) {
  return {.max_num_batched_tokens = max_tokens,
          .max_num_seqs = 1,
          .max_model_len = 128,
          .max_inputs = shape.cols,
          .quantized_weights = IsQuantized(shape.format)};
}

// A backend with the library on an emulated device, a packed weight, and matrices of the most rows.
class Multiplier {
 public:
  explicit Multiplier(const ProductCase& c, bool late = true)
      : driver_({.total_bytes = int64_t{160} << 20, .late = late}),
        device_(std::move(CudaDevice::New(driver_, 0)).value()),
        backend_(NewCudaBackend(*device_, driver_, std::move(NewCublasLt(driver_)).value())),
        shape_(c.shape),
        workspace_(Allocate(backend_->WorkspaceBytes(LimitsFor(shape_), kHeads))),
        packed_(Allocate(backend_->PackedBytes(shape_))),
        x_(Allocate(kMaxTokens * shape_.cols * 4)),
        out_(Allocate(kMaxTokens * (shape_.rows + 1) * 4)) {
    backend_->SetWorkspace(workspace_.data(), LimitsFor(shape_), kHeads);
    device_->CopyFromHost(Values().data(), x_.data(), kMaxTokens * shape_.cols * 4);
    Fill(c, *backend_->Pack(linear()));
    EXPECT_TRUE(device_->Synchronize().ok());
  }

  Linear linear() const { return {shape_, packed_.data()}; }
  MatrixView X(int64_t rows) { return {x_.data(), DType::kF32, rows, shape_.cols}; }
  MatrixView Out(int64_t rows) {
    return {out_.data(), DType::kF32, rows, shape_.rows, shape_.rows + 1};
  }
  absl::Status Rehearse() {
    return backend_->RehearseMatMul(X(kMaxTokens), linear(), Out(kMaxTokens));
  }
  // The product of the first rows; whether the library made it.
  std::pair<std::vector<float>, bool> Multiply(int64_t rows) {
    const int before = FakeCublasLt().products;
    backend_->MatMul(X(rows), linear(), Out(rows));
    const absl::Status done = device_->Synchronize();
    EXPECT_TRUE(done.ok()) << done;
    return {Product(rows), FakeCublasLt().products > before};
  }
  std::vector<float> Product(int64_t rows) {
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row) {
      const float* const from = Out(rows).F32(row);
      values.insert(values.end(), from, from + shape_.rows);
    }
    return values;
  }
  const std::vector<float>& Values() {
    if (values_.empty()) values_ = NormalFloats(kMaxTokens * shape_.cols, 9);
    return values_;
  }
  CudaDriver& driver() { return driver_; }
  CudaDevice& device() { return *device_; }

 private:
  Buffer Allocate(int64_t bytes) { return std::move(device_->Allocate(bytes)).value(); }

  emulator::EmulatedCudaDriver driver_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Backend> backend_;
  const LinearShape shape_;
  std::vector<float> values_;
  Buffer workspace_;
  Buffer packed_;
  Buffer x_;
  Buffer out_;
};

std::vector<float> ByReference(const ProductCase& c, std::vector<float> x, int64_t rows) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewReferenceBackend(*host);
  Packed packed(*backend, c, kMaxTokens);
  std::vector<float> out(rows * c.shape.rows);
  backend->MatMul(ViewOf(x, rows, c.shape.cols, c.shape.cols), packed.linear,
                  ViewOf(out, rows, c.shape.rows, c.shape.rows));
  return out;
}

class GemmLibraryTest : public testing::Test {
 protected:
  void SetUp() override { FakeCublasLt().fault = FakeCublasLtFault::kNone; }
  void TearDown() override {
    EXPECT_EQ(FakeCublasLt().handles, 0);
    EXPECT_EQ(FakeCublasLt().descriptors, 0);
  }
};

const ProductCase kPlain{LinearShape::Whole(40, 70, DType::kBF16)};
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
      ASSERT_TRUE(multiplier.Rehearse().ok());
      const bool codes = IsQuantized(c.shape.format);
      for (const int64_t rows : {64, 65, 300, 511, 512, 640}) {
        const auto [product, by_library] = multiplier.Multiply(rows);
        EXPECT_EQ(by_library, rows >= (codes ? 512 : 65)) << rows;
        EXPECT_LT(RelativeError(product, ByReference(c, multiplier.Values(), rows)), kTolerance)
            << rows;
      }
    }
  }
}

TEST_F(GemmLibraryTest, ARowsBitsDependOnTheBucketAlone) {
  Multiplier multiplier(kPlain);
  ASSERT_TRUE(multiplier.Rehearse().ok());
  std::vector<float> whole = multiplier.Multiply(256).first;
  for (const int64_t rows : {129, 200, 255}) {
    const std::vector<float> product = multiplier.Multiply(rows).first;
    EXPECT_EQ(FakeCublasLt().last_tokens, 256);
    EXPECT_EQ(product, std::vector<float>(whole.begin(), whole.begin() + rows * kPlain.shape.rows));
  }
  multiplier.Multiply(620);
  EXPECT_EQ(FakeCublasLt().last_tokens, kMaxTokens) << "no bucket is larger than a step";
}

TEST_F(GemmLibraryTest, UnpacksAWeightInPieces) {
  for (const int64_t outputs : {48, 40, 33}) {
    ProductCase c = kInt4;
    c.shape.rows = outputs;
    Multiplier multiplier(c);
    ASSERT_TRUE(multiplier.Rehearse().ok());
    const auto [whole, by_library] = multiplier.Multiply(600);
    EXPECT_TRUE(by_library);
    CudaProducts products(multiplier.driver(), std::move(NewCublasLt(multiplier.driver())).value(),
                          16 * c.shape.cols * 2);
    Carver counted;
    products.LayOut(LimitsFor(c.shape), counted);
    const Buffer workspace = std::move(multiplier.device().Allocate(counted.used_bytes())).value();
    Carver carver(workspace.data());
    products.SetScratch(products.LayOut(LimitsFor(c.shape), carver));
    ASSERT_TRUE(
        products.Rehearse(multiplier.X(kMaxTokens), multiplier.linear(), multiplier.Out(kMaxTokens))
            .ok());
    const int before = FakeCublasLt().products;
    products.MatMul(multiplier.X(600), multiplier.linear(), multiplier.Out(600));
    ASSERT_TRUE(multiplier.device().Synchronize().ok());
    EXPECT_EQ(FakeCublasLt().products - before, 3) << "pieces of 16 outputs";
    EXPECT_EQ(multiplier.Product(600), whole);
  }
}

TEST_F(GemmLibraryTest, GetsNothingThatWasNotRehearsed) {
  Multiplier multiplier(kPlain);
  EXPECT_FALSE(multiplier.Multiply(300).second);
  ASSERT_TRUE(multiplier.Rehearse().ok());
  EXPECT_TRUE(multiplier.Multiply(300).second);
  const int rehearsed = FakeCublasLt().products;
  ASSERT_TRUE(multiplier.Rehearse().ok());
  EXPECT_EQ(FakeCublasLt().products, rehearsed)
      << "a second weight of the shape runs nothing again";
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
    ASSERT_TRUE(multiplier.Rehearse().ok());
    EXPECT_EQ(multiplier.Multiply(200), std::make_pair(want, false));
    EXPECT_TRUE(multiplier.Multiply(300).second);
  }
  FakeCublasLt().fault = FakeCublasLtFault::kWantsMore;
  Multiplier multiplier(kPlain);
  ASSERT_TRUE(multiplier.Rehearse().ok());
  EXPECT_EQ(multiplier.Multiply(200), std::make_pair(want, false));
  EXPECT_FALSE(multiplier.Multiply(300).second);
}

TEST_F(GemmLibraryTest, AFailureIsTheDevicesFault) {
  Multiplier multiplier(kPlain);
  FakeCublasLt().fault = FakeCublasLtFault::kFailsToEnqueue;
  EXPECT_THAT(multiplier.Rehearse().message(), HasSubstr("cublasLtMatmul: an error"));
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

TEST_F(GemmLibraryTest, TheWorkspaceHasRoomForItOnlyWhereItMayBeUsed) {
  emulator::EmulatedCudaDriver driver({});
  const std::unique_ptr<CudaDevice> device = std::move(CudaDevice::New(driver, 0)).value();
  const auto without = NewCudaBackend(*device, driver);
  const auto with = NewCudaBackend(*device, driver, std::move(NewCublasLt(driver)).value());
  const auto more = [&](const ProductCase& c, int max_tokens) {
    const StepLimits limits = LimitsFor(c.shape, max_tokens);
    return with->WorkspaceBytes(limits, kHeads) - without->WorkspaceBytes(limits, kHeads);
  };
  EXPECT_EQ(more(kPlain, 64), 0);
  EXPECT_EQ(more(kPlain, 65), int64_t{32} << 20);
  EXPECT_EQ(more(kInt4, 511), int64_t{32} << 20);
  EXPECT_EQ(more(kInt4, 512), int64_t{96} << 20);
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
