// What the ledger says of a GPU's memory against what the GPU says. Nothing else may use the GPU
// meanwhile.
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/cuda_device.h"
#include "memory/ledger.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryOnGpuTest : public testing::Test {
 protected:
  MemoryOnGpuTest()
      : driver_(std::move(NewCudaRuntimeDriver(0)).value()),
        device_(std::move(CudaDevice::New(*driver_, 0)).value()) {}
  int64_t FreeBytes() { return driver_->Memory()->free_bytes; }

  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(MemoryOnGpuTest, FreeMemoryFallsByWhatIsMappedAndComesBack) {
  const int64_t before = FreeBytes();
  {
    const Buffer weights = *device_->Allocate(700 * kMiB + 1);
    const Buffer kv = *device_->Allocate(300 * kMiB);
    EXPECT_EQ(before - FreeBytes(), device_->mapped_bytes());
    EXPECT_GE(device_->mapped_bytes(), device_->allocated_bytes());
  }
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(MemoryOnGpuTest, ThePoolTakesWhatIsLeftAndItsAddressStays) {
  Buffer kv = *device_->Allocate(2 * kMiB);
  const std::byte* const at = kv.data();
  const int64_t rest = FreeBytes() - 64 * kMiB;
  ASSERT_TRUE(device_->Extend(kv, rest).ok());
  EXPECT_EQ(kv.data(), at);
  EXPECT_LT(FreeBytes(), 66 * kMiB);
  std::vector<std::byte> end(4096, std::byte{1});
  device_->CopyToHost(kv.data() + kv.bytes() - 4096, end.data(), 4096);
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(end, std::vector<std::byte>(4096));
}

TEST_F(MemoryOnGpuTest, WhatAnotherHasTakenIsRefusedWithTheNumbersAndChangesNothing) {
  const auto other_driver = std::move(NewCudaRuntimeDriver(0)).value();
  const auto other = std::move(CudaDevice::New(*other_driver, 0)).value();
  const Buffer ours = *device_->Allocate(100 * kMiB);
  const Buffer hog = *other->Allocate(FreeBytes() - 200 * kMiB);
  const absl::Status refused = device_->Allocate(400 * kMiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("400.0 MiB requested"));
  EXPECT_EQ(device_->allocated_bytes(), 100 * kMiB);
  EXPECT_TRUE(device_->Allocate(50 * kMiB).ok());
}

TEST_F(MemoryOnGpuTest, NothingThatRunsAfterTheSealMovesFreeMemory) {
  MemoryLedger ledger(*device_);
  ledger.Claim(MemoryCategory::kWeights, 64 * kMiB);
  const Buffer buffer = *ledger.Take(MemoryCategory::kWeights, 64 * kMiB);
  ASSERT_TRUE(device_->Synchronize().ok());
  ledger.Seal();
  const int64_t sealed = FreeBytes();
  std::vector<std::byte> host(kMiB);
  for (int i = 0; i < 10'000; ++i) {
    driver_->Copy(buffer.data(), buffer.data() + 32 * kMiB, kMiB);
    if (i % 100 == 0) {
      device_->CopyToHost(buffer.data(), host.data(), kMiB);
      ASSERT_TRUE(device_->Synchronize().ok());
      ASSERT_EQ(FreeBytes(), sealed) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace bulkhead
