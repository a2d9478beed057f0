#include "memory/cuda_device.h"

#include <cstring>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/ledger.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGranule = 64 << 10;
constexpr int64_t kTotal = 64 * kGranule;

class CudaDeviceTest : public testing::TestWithParam<bool> {
 protected:
  CudaDeviceTest()
      : driver_({.total_bytes = kTotal, .map_granule_bytes = kGranule, .late = GetParam()}) {}
  std::unique_ptr<CudaDevice> NewDevice(int64_t capacity_bytes = 0) {
    auto device = CudaDevice::New(driver_, capacity_bytes);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  int64_t FreeBytes() { return driver_.Memory()->free_bytes; }

  emulator::EmulatedCudaDriver driver_;
};

TEST_P(CudaDeviceTest, BuffersAreAlignedZeroedAndGivenBack) {
  const auto device = NewDevice();
  {
    const Buffer small = *device->Allocate(100);
    const Buffer large = *device->Allocate(3 * kGranule);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % CudaDevice::kAlignBytes, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % CudaDevice::kAlignBytes, 0);
    EXPECT_EQ(device->allocated_bytes(), 100 + 3 * kGranule);
    std::vector<std::byte> read(3 * kGranule, std::byte{7});
    device->CopyToHost(large.data(), read.data(), 3 * kGranule);
    ASSERT_TRUE(device->Synchronize().ok());
    EXPECT_EQ(read, std::vector<std::byte>(3 * kGranule));
    EXPECT_EQ(FreeBytes(), kTotal - device->mapped_bytes());
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(FreeBytes(), kTotal);
}

TEST_P(CudaDeviceTest, HostMemoryIsPinnedZeroedAndGivenBackWhenItsCopiesAreDone) {
  const auto device = NewDevice();
  const Buffer buffer = *device->Allocate(100);
  {
    const HostBuffer host = *device->AllocateHost(100);
    EXPECT_EQ(std::vector<std::byte>(host.get(), host.get() + 100), std::vector<std::byte>(100));
    std::memset(host.get(), 5, 100);
    driver_.BeginCapture();  // which requires pinned memory
    device->CopyFromHost(host.get(), buffer.data(), 100);
    const auto graph = driver_.EndCapture();
    ASSERT_TRUE(graph.ok()) << graph.status();
    driver_.LaunchGraph(*graph);
  }
  std::vector<std::byte> read(100);
  device->CopyToHost(buffer.data(), read.data(), 100);
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(read, std::vector<std::byte>(100, std::byte{5}));
}

TEST_P(CudaDeviceTest, BuffersLieTightSoThatAllOfThemLoseLessThanAGranule) {
  const auto device = NewDevice();
  std::vector<Buffer> buffers;
  for (int i = 0; i < 20; ++i) buffers.push_back(*device->Allocate(1000));
  EXPECT_EQ(device->mapped_bytes(), kGranule);
  for (int i = 1; i < 20; ++i) EXPECT_EQ(buffers[i].data(), buffers[i - 1].data() + 1024);
}

TEST_P(CudaDeviceTest, WhatIsCopiedInComesBack) {
  const auto device = NewDevice();
  const Buffer buffer = *device->Allocate(1000);
  std::vector<uint8_t> in(1000);
  for (int i = 0; i < 1000; ++i) in[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint8_t> out(1000);
  device->CopyFromHost(in.data(), buffer.data(), 1000);
  device->CopyToHost(buffer.data(), out.data(), 1000);
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(in, out);
}

TEST_P(CudaDeviceTest, ACapIsKeptToTheByte) {
  const auto device = NewDevice(1000);
  Buffer first = *device->Allocate(600);
  const absl::Status refused = device->Allocate(401).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("400 B left of a capacity of 1000 B"));
  ASSERT_TRUE(device->Charge(400).ok());
  EXPECT_FALSE(device->Allocate(1).ok());
  device->Release(400);
  first = Buffer();
  EXPECT_TRUE(device->Allocate(1000).ok());
}

TEST_P(CudaDeviceTest, ARefusalSaysWhatTheDeviceHasFree) {
  const auto device = NewDevice();
  driver_.set_others_bytes(60 * kGranule);
  const absl::Status refused = device->Allocate(5 * kGranule).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("320.0 KiB requested, 256.0 KiB free"));
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_TRUE(device->Allocate(4 * kGranule).ok());
  EXPECT_FALSE(device->Allocate(3 * kTotal).ok());  // more than the address range
}

TEST_P(CudaDeviceTest, TheLastBufferGrowsInPlaceAndNothingMoves) {
  const auto device = NewDevice();
  const Buffer weights = *device->Allocate(3 * kGranule);
  Buffer kv = *device->Allocate(1000);
  std::byte* const at = kv.data();
  const std::byte mark{42};
  device->CopyFromHost(&mark, at + 999, 1);
  ASSERT_TRUE(device->Synchronize().ok());
  const int64_t rest = FreeBytes();
  ASSERT_TRUE(device->Extend(kv, rest).ok());
  EXPECT_EQ(FreeBytes(), 0);
  EXPECT_EQ(kv.data(), at);
  EXPECT_EQ(kv.bytes(), 1000 + rest);
  EXPECT_EQ(device->allocated_bytes(), 3 * kGranule + 1000 + rest);
  std::vector<std::byte> read(1000 + rest);
  device->CopyToHost(at, read.data(), 1000 + rest);
  ASSERT_TRUE(device->Synchronize().ok());
  std::vector<std::byte> expected(1000 + rest);
  expected[999] = mark;
  EXPECT_EQ(read, expected);
}

TEST_P(CudaDeviceTest, GrowthThatIsRefusedLeavesTheBufferAsItWas) {
  const auto device = NewDevice();
  Buffer kv = *device->Allocate(1000);
  EXPECT_EQ(device->Extend(kv, 2 * kTotal).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(kv.bytes(), 1000);
  EXPECT_EQ(device->allocated_bytes(), 1000);
  kv = Buffer();
  EXPECT_EQ(FreeBytes(), kTotal);
}

TEST_P(CudaDeviceTest, MemoryInTheMiddleIsUsedAgainOnceWhatLiesBehindIsGone) {
  const auto device = NewDevice();
  const Buffer first = *device->Allocate(kGranule);
  Buffer second = *device->Allocate(kGranule);
  Buffer third = *device->Allocate(kGranule);
  second = Buffer();
  EXPECT_EQ(FreeBytes(), kTotal - 3 * kGranule);
  third = Buffer();
  EXPECT_EQ(FreeBytes(), kTotal - kGranule);
  second = *device->Allocate(kTotal - kGranule);
  EXPECT_EQ(FreeBytes(), 0);
}

TEST_P(CudaDeviceTest, MemoryIsUnmappedOnlyWhenNothingEnqueuedUsesItAnyMore) {
  const auto device = NewDevice();
  std::vector<uint8_t> out(1000, 9);
  {
    const Buffer buffer = *device->Allocate(1000);
    device->CopyToHost(buffer.data(), out.data(), 1000);
  }
  EXPECT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(out, std::vector<uint8_t>(1000));
}

TEST_P(CudaDeviceTest, TheLedgerTakesAndSealsAsOnTheHost) {
  const auto device = NewDevice();
  MemoryLedger ledger(*device);
  ledger.Claim(MemoryCategory::kWeights, 2 * kGranule + 1);
  ledger.Claim(MemoryCategory::kKv, 1000);
  const Buffer weights = *ledger.Take(MemoryCategory::kWeights, 2 * kGranule + 1);
  const Buffer kv = *ledger.Take(MemoryCategory::kKv, 1000);
  ledger.Seal();
  const int64_t free_bytes = FreeBytes();
  EXPECT_EQ(device->allocated_bytes(), ledger.claimed_bytes());
  EXPECT_LT(device->mapped_bytes() - device->allocated_bytes(), kGranule + 512);
  EXPECT_EQ(FreeBytes(), free_bytes);
}

INSTANTIATE_TEST_SUITE_P(Queue, CudaDeviceTest, testing::Bool(),
                         [](const auto& late) { return late.param ? "Late" : "Early"; });

}  // namespace
}  // namespace bulkhead
