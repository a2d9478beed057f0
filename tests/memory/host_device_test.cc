#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/device.h"

namespace bulkhead {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(HostDeviceTest, BuffersAreAlignedZeroedAndGivenBack) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  {
    const Buffer small = *device->Allocate(100);
    const Buffer large = *device->Allocate(3 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % 64, 0);
    for (int64_t i = 0; i < large.bytes(); i += 4096) ASSERT_EQ(large.data()[i], std::byte{0});
    EXPECT_EQ(device->allocated_bytes(), 100 + (3 << 20));
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

// Of each page of the buffer.
std::vector<unsigned char> ResidentPages(const Buffer& buffer) {
  std::vector<unsigned char> resident((buffer.bytes() + 4095) / 4096);
  EXPECT_EQ(mincore(buffer.data(), buffer.bytes(), resident.data()), 0);
  for (unsigned char& page : resident) page &= 1;
  return resident;
}

// From 64 MiB a thread on several threads share the work.
TEST(HostDeviceTest, CommittedBuffersHaveEveryPage) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  for (const int64_t bytes : {int64_t{1}, (int64_t{6} << 20) + 1, (int64_t{130} << 20) + 5000}) {
    const Buffer buffer = *device->Allocate(bytes);
    ASSERT_TRUE(device->Commit(buffer).ok());
    EXPECT_THAT(ResidentPages(buffer), Each(1)) << bytes;
  }
  EXPECT_TRUE(device->Commit(*device->Allocate(0)).ok());
}

TEST(HostDeviceTest, CapacityIsKeptToTheByte) {
  const std::unique_ptr<Device> device = NewHostDevice(1000);
  Buffer first = *device->Allocate(600);
  const absl::Status refused = device->Allocate(401).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("400 B left of a capacity of 1000 B"));
  EXPECT_TRUE(device->Allocate(400).ok());
  first = Buffer();
  EXPECT_TRUE(device->Allocate(1000).ok());
}

TEST(HostDeviceTest, ChargedMemoryCountsAgainstTheCapacity) {
  const std::unique_ptr<Device> device = NewHostDevice(1000);
  ASSERT_TRUE(device->Charge(700).ok());
  EXPECT_EQ(device->allocated_bytes(), 700);
  EXPECT_FALSE(device->Allocate(301).ok());
  EXPECT_FALSE(device->Charge(301).ok());
  EXPECT_EQ(device->allocated_bytes(), 700);
  device->Release(700);
  EXPECT_TRUE(device->Allocate(1000).ok());
}

TEST(HostDeviceTest, MoreThanTheMachineHasIsRefused) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  EXPECT_EQ(device->Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(HostDeviceTest, EmptyBufferIsNoMemory) {
  const std::unique_ptr<Device> device = NewHostDevice(10);
  const Buffer empty = *device->Allocate(0);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(HostDeviceTest, MovedBufferIsFreedOnce) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  Buffer a = *device->Allocate(64);
  Buffer b = std::move(a);
  a = std::move(b);
  EXPECT_EQ(a.bytes(), 64);
  a = Buffer();
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(HostDeviceTest, CopiesBothWays) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const Buffer buffer = *device->Allocate(8);
  const char text[8] = "bulkhed";
  char back[8];
  device->CopyFromHost(text, buffer.data(), 8);
  device->CopyToHost(buffer.data(), back, 8);
  EXPECT_TRUE(device->Synchronize().ok());
  EXPECT_STREQ(back, text);
}

TEST(HostDeviceDeathTest, BufferThatOutlivesItsDeviceIsABug) {
  EXPECT_EXIT(
      {
        std::unique_ptr<Device> device = NewHostDevice(0);
        Buffer buffer = *device->Allocate(64);
        device.reset();
      },
      testing::ExitedWithCode(70), "host_device");
}

}  // namespace
}  // namespace bulkhead
