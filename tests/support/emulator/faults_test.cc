// Errors that a device would not tolerate, and that the emulator reports.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/block.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::emulator {
namespace {

using cuda::kFullMask;
using testing::AllOf;
using testing::HasSubstr;

struct Global {
  std::byte* bytes = nullptr;
};

// The first fault of `kernel` on one block of 64 threads with 256 bytes of shared memory.
std::string FaultOf(void (*kernel)(Global), Schedule schedule) {
  alignas(16) std::byte global[64] = {};
  const CudaKernel erased = cuda::KernelOf<1024>("wrong", kernel).kernel;
  const Global parameters{global};
  const LaunchShape shape{.block = {64, 1, 1}, .shared_bytes = 256};
  return std::string(Block().Launch(erased, shape, &parameters, schedule, 1).message());
}

class FaultTest : public testing::TestWithParam<Schedule> {};
INSTANTIATE_TEST_SUITE_P(AllSchedules, FaultTest, testing::ValuesIn(kAllSchedules));

TEST_P(FaultTest, LanesOfAWarpAtDifferentCollectives) {
  const auto kernel = [](Global) {
    if (int(threadIdx.x) == 5) {
      cuda::__shfl_xor_sync(kFullMask, 1.0F, 1);
    } else {
      cuda::__shfl_sync(kFullMask, 1.0F, 0);
    }
  };
  EXPECT_THAT(FaultOf(kernel, GetParam()),
              AllOf(HasSubstr("kernel wrong"), HasSubstr("others of its warp or block are at")));
}

TEST_P(FaultTest, HalfAWarpSkipsAShuffle) {
  const auto kernel = [](Global) {
    if (int(threadIdx.x) % 32 < 16) cuda::__shfl_sync(kFullMask, 1.0F, 0);
  };
  EXPECT_THAT(FaultOf(kernel, GetParam()), HasSubstr("deadlock"));
}

TEST_P(FaultTest, AWarpThatEndedBeforeABarrier) {
  const auto kernel = [](Global) {
    if (int(threadIdx.x) < 32) cuda::__syncthreads();
  };
  EXPECT_THAT(FaultOf(kernel, GetParam()),
              AllOf(HasSubstr("deadlock"), HasSubstr("__syncthreads")));
}

TEST_P(FaultTest, CopiesThatNobodyWaitedFor) {
  const auto begun = [](Global p) {
    cuda::GridDependencySynchronize();
    if (int(threadIdx.x) == 0) cuda::CpAsync16(cuda::SharedMemory(), p.bytes, true);
  };
  EXPECT_THAT(FaultOf(begun, GetParam()), HasSubstr("copies that it did not wait for"));
  const auto committed = [](Global p) {
    cuda::GridDependencySynchronize();
    if (int(threadIdx.x) == 0) cuda::CpAsync16(cuda::SharedMemory(), p.bytes, true);
    cuda::CpAsyncCommit();
    cuda::CpAsyncWait<1>();
  };
  EXPECT_THAT(FaultOf(committed, GetParam()), HasSubstr("copies that it did not wait for"));
}

TEST_P(FaultTest, AThreadThatDoesNotWaitForTheKernelBefore) {
  const auto kernel = [](Global) {
    if (int(threadIdx.x) != 40) cuda::GridDependencySynchronize();
  };
  EXPECT_THAT(FaultOf(kernel, GetParam()), HasSubstr("had not waited for the kernel before"));
}

TEST_P(FaultTest, AMisalignedCopy) {
  const auto to = [](Global p) { cuda::CpAsync16(cuda::SharedMemory() + 8, p.bytes, true); };
  EXPECT_THAT(FaultOf(to, GetParam()), HasSubstr("no multiple of 16"));
  const auto from = [](Global p) { cuda::CpAsync16(cuda::SharedMemory(), p.bytes + 4, true); };
  EXPECT_THAT(FaultOf(from, GetParam()), HasSubstr("no multiple of 16"));
}

TEST_P(FaultTest, ACopyOrATileOutsideSharedMemory) {
  const auto copy = [](Global p) { cuda::CpAsync16(cuda::SharedMemory() + 256, p.bytes, true); };
  EXPECT_THAT(FaultOf(copy, GetParam()), HasSubstr("256 bytes into 256 bytes of shared memory"));
  const auto tile = [](Global p) {
    uint32_t r[4];
    cuda::LdMatrixX4(r, p.bytes);
  };
  EXPECT_THAT(FaultOf(tile, GetParam()), HasSubstr("of shared memory"));
}

TEST_P(FaultTest, AMisalignedRowOfATile) {
  const auto kernel = [](Global) {
    uint32_t r[4];
    cuda::LdMatrixX4Trans(r, cuda::SharedMemory() + 2 * cuda::LaneIndex());
  };
  EXPECT_THAT(FaultOf(kernel, GetParam()), HasSubstr("LdMatrixX4Trans of an address"));
}

TEST_P(FaultTest, AMisalignedLoadOfSixteenBytes) {
  const auto kernel = [](Global p) { cuda::LoadStream(p.bytes + 8); };
  EXPECT_THAT(FaultOf(kernel, GetParam()), HasSubstr("no multiple of 16"));
}

TEST_P(FaultTest, AShuffleFromOutsideTheWarp) {
  const auto kernel = [](Global) { cuda::__shfl_sync(kFullMask, 1.0F, 32); };
  EXPECT_THAT(FaultOf(kernel, GetParam()), HasSubstr("outside the warp"));
}

TEST(LaunchTest, RefusesShapesThatNoDeviceTakes) {
  const auto fault = [](LaunchShape shape) {
    const CudaKernel kernel = cuda::KernelOf<1024>(
                                  "wrong", +[](Global) { cuda::GridDependencySynchronize(); })
                                  .kernel;
    const Global parameters;
    return std::string(
        Block().Launch(kernel, shape, &parameters, Schedule::kAscending, 1).message());
  };
  EXPECT_EQ(fault({.block = {1024, 1, 1}}), "");
  EXPECT_THAT(fault({.block = {1056, 1, 1}}), HasSubstr("1056 x 1 x 1 threads"));
  EXPECT_THAT(fault({.block = {48, 1, 1}}), HasSubstr("48 x 1 x 1 threads"));
  EXPECT_THAT(fault({.block = {32, 2, 1}}), HasSubstr("32 x 2 x 1 threads"));
  EXPECT_THAT(fault({.grid = {1, 65536, 1}, .block = {32, 1, 1}}), HasSubstr("1 x 65536 x 1"));
}

TEST(LaunchTest, TakesBlocksThatWaitForLowerOnesInOrder) {
  static std::vector<int> blocks;
  const auto note = [](Global) {
    cuda::GridDependencySynchronize();
    if (int(threadIdx.x) == 0) blocks.push_back(int(blockIdx.x));
  };
  const CudaKernel kernel = cuda::KernelOf<1024, Global>("right", note).kernel;
  const Global parameters;
  for (const Schedule schedule : kAllSchedules) {
    blocks.clear();
    const LaunchShape shape{.grid = {3, 1, 1}, .block = {32, 1, 1}, .in_order = true};
    ASSERT_TRUE(Block().Launch(kernel, shape, &parameters, schedule, 1).ok());
    EXPECT_THAT(blocks, testing::ElementsAre(0, 1, 2));
  }
}

TEST(LaunchTest, RefusesMoreThreadsThanTheLaunchBounds) {
  const CudaKernel kernel = cuda::KernelOf<64>(
                                "wrong", +[](Global) { cuda::GridDependencySynchronize(); })
                                .kernel;
  const Global parameters;
  const auto launch = [&](int threads) {
    return Block().Launch(kernel, {.block = {threads, 1, 1}}, &parameters, Schedule::kAscending, 1);
  };
  EXPECT_TRUE(launch(64).ok());
  EXPECT_THAT(launch(96).message(), HasSubstr("blocks of 96 threads; its launch bounds are 64"));
}

TEST(LaunchTest, RefusesAKernelThatWasCompiledForADevice) {
  const CudaKernel kernel{.name = "foreign", .parameter_bytes = sizeof(Global)};
  const Global parameters;
  EXPECT_THAT(
      Block().Launch(kernel, {.block = {32, 1, 1}}, &parameters, Schedule::kAscending, 1).message(),
      HasSubstr("compiled for a device"));
}

}  // namespace
}  // namespace bulkhead::emulator
