// A build without CUDA says what it lacks, whoever asks, and what to do instead.
#include "comm/nccl/nccl_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_sizes.h"
#include "memory/cuda_runtime_driver.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectAbsent(const absl::Status& status, const char* what, const char* remedy) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(what), HasSubstr(remedy)));
}

TEST(WithoutCuda, DevicesAreRefusedWithTheRemedy) {
  ExpectAbsent(ListCudaDevices().status(), "no CUDA", "nvcc");
  ExpectAbsent(NewCudaRuntimeDriver(0).status(), "no CUDA", "nvcc");
}

TEST(WithoutCuda, NcclIsRefusedWithTheRemedy) {
  ExpectAbsent(NcclVersion().status(), "no NCCL", "--comm staged");
}

TEST(WithoutCuda, APlanForAGpuHasItsSizes) {
  EXPECT_TRUE(CheckCudaFormats(WeightFormat::kBF16, KvFormat::kBF16, 128).ok());
  EXPECT_TRUE(CheckCudaFormats(WeightFormat::kMxfp4, KvFormat::kBF16, 128).ok());
  EXPECT_TRUE(CheckCudaFormats(WeightFormat::kBF16, KvFormat::kFP8, 576, 512).ok());
  ExpectAbsent(CheckCudaFormats(WeightFormat::kBF16, KvFormat::kInt8, 576, 512), "int8", "fp8");
  ExpectAbsent(CheckCudaFormats(WeightFormat::kBF16, KvFormat::kBF16, 1088, 1024), "1088",
               "--device cpu");
  LinearShape shape;
  shape.rows = 100;
  shape.cols = 130;
  shape.format = WeightFormat::kBF16;
  EXPECT_EQ(NewCudaSizes(false)->PackedBytes(shape), 112 * 192 * 2);
}

}  // namespace
}  // namespace bulkhead
