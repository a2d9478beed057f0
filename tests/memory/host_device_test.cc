#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
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

bool IsBacked(const std::byte* page) {
  unsigned char backed = 0;
  EXPECT_EQ(mincore(const_cast<std::byte*>(page), 4096, &backed), 0);
  return (backed & 1) != 0;
}

// The kernel locks a process's mappings while it backs memory: heartbeats that allocate would wait.
TEST(HostDeviceTest, OtherThreadsMapMemoryWhileABufferIsCommitted) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const Buffer buffer = *device->Allocate(int64_t{1} << 30);
  const std::byte* const last = buffer.data() + buffer.bytes() - 4096;
  int mapped = 0;  // behind the first page, in front of the last one
  std::thread mapper([&] {
    while (!IsBacked(last)) {
      const bool has_begun = IsBacked(buffer.data());
      void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      munmap(page, 4096);
      if (has_begun && !IsBacked(last)) ++mapped;
    }
  });
  EXPECT_TRUE(device->Commit(buffer).ok());
  mapper.join();
  EXPECT_GE(mapped, 4);
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
