// Planted accesses that are undefined on a device, each next to the kernel without it: a fault in
// every schedule, whatever the bytes are.
#include "tests/support/emulator/shadow_memory.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::emulator {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kBytes = int64_t{64} << 10;  // size of device memory
constexpr int kThreads = 64;

struct Memory {
  uint32_t* in = nullptr;   // written from the host: in[i] = i
  uint32_t* out = nullptr;  // not written
  uint32_t* host = nullptr;
};
using Kernel = void (*)(Memory);

uint32_t* Shared() { return reinterpret_cast<uint32_t*>(cuda::SharedMemory()); }
int Thread() { return static_cast<int>(threadIdx.x); }
void Begin() { cuda::GridDependencySynchronize(); }

class ShadowTest : public testing::TestWithParam<Schedule> {
 protected:
  ShadowTest() : driver_({.total_bytes = 2 * kBytes, .schedule = GetParam()}) {
    base_ = driver_.Reserve(2 * kBytes).value();
    EXPECT_TRUE(driver_.Map(base_, kBytes).ok());
    memory_.in = reinterpret_cast<uint32_t*>(base_);
    memory_.out = reinterpret_cast<uint32_t*>(base_ + kBytes / 2);
    memory_.host = host_.data();
    std::vector<uint32_t> numbers(kBytes / 8);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
    driver_.CopyToDevice(numbers.data(), base_, kBytes / 2);
  }
  ~ShadowTest() override {
    driver_.Unmap(base_, kBytes);
    driver_.ReleaseRange(base_, 2 * kBytes);
  }

  void CopyFromHost() { driver_.CopyToDevice(host_.data(), base_, 4); }
  // The fault of a kernel that follows a library's kernel, which reads `in` and writes `out`.
  std::string FaultBehindLibrary(Kernel kernel) {
    driver_.EnqueueForLibrary({{memory_.in, kBytes / 2, false}, {memory_.out, kBytes / 2, true}},
                              [] { return absl::OkStatus(); });
    return FaultOf({kernel});
  }
  // The fault of the kernels, run in order.
  std::string FaultOf(const std::vector<Kernel>& kernels, int blocks = 1) {
    for (const Kernel kernel : kernels) {
      const LaunchShape shape{
          .grid = {blocks, 1, 1}, .block = {kThreads, 1, 1}, .shared_bytes = kThreads * 4};
      driver_.Launch(cuda::KernelOf<1024>("planted", kernel).kernel, shape, &memory_);
    }
    return std::string(driver_.Synchronize().message());
  }

 private:
  EmulatedCudaDriver driver_;
  std::byte* base_ = nullptr;
  std::vector<uint32_t> host_ = std::vector<uint32_t>(kThreads);
  Memory memory_;
};
INSTANTIATE_TEST_SUITE_P(Schedules, ShadowTest, testing::ValuesIn(kAllSchedules));

template <bool kWrong>
void ReadsEarly(Memory p) {
  uint32_t x = kWrong ? p.out[Thread()] : p.in[Thread()];
  Begin();
  p.out[Thread()] = x + 1;
}

void WritesOut(Memory p) {
  Begin();
  p.out[Thread()] = p.in[Thread()];
}

TEST_P(ShadowTest, AReadOfAnotherKernelsOutputBeforeItHasEnded) {
  EXPECT_THAT(FaultOf({WritesOut, ReadsEarly<false>}), IsEmpty());
  EXPECT_THAT(FaultOf({ReadsEarly<true>}), HasSubstr("a read of what a kernel has written"));
}

TEST_P(ShadowTest, AReadOfALibrarysOutputBeforeItHasEnded) {
  EXPECT_THAT(FaultBehindLibrary(ReadsEarly<false>), IsEmpty());
  EXPECT_THAT(FaultBehindLibrary(ReadsEarly<true>),
              HasSubstr("a read of what a kernel has written"));
}

TEST_P(ShadowTest, NoReadOfAKernelsOutputFromBeforeACopyOfTheHost) {
  EXPECT_THAT(FaultOf({WritesOut}), IsEmpty());
  CopyFromHost();
  EXPECT_THAT(FaultOf({ReadsEarly<true>}), IsEmpty());
  EXPECT_THAT(FaultOf({ReadsEarly<true>}), HasSubstr("a read of what a kernel has written"));
}

TEST_P(ShadowTest, AWriteBeforeTheKernelBeforeHasEnded) {
  const auto kernel = [](Memory p) {
    p.out[Thread()] = 1;
    Begin();
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("a write before it has waited"));
}

TEST_P(ShadowTest, AReadOfDeviceMemoryThatNothingHasWritten) {
  const auto kernel = [](Memory p) {
    Begin();
    p.out[Thread()] = p.out[kThreads + Thread()];
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("a read of what nothing has written"));
}

TEST_P(ShadowTest, AReadOfTheSharedMemoryOfTheBlockBefore) {
  const auto kernel = [](Memory p) {
    Begin();
    if (int(blockIdx.x) == 0 || int(gridDim.x) == 1) Shared()[Thread()] = 1;
    p.out[int(blockIdx.x) * kThreads + Thread()] = Shared()[Thread()];
  };
  EXPECT_THAT(FaultOf({kernel}), IsEmpty());
  EXPECT_THAT(FaultOf({kernel}, 2), HasSubstr("a read of what nothing has written"));
}

template <bool kWrong>
void ReadsAcross(Memory p) {
  Begin();
  Shared()[Thread()] = p.in[Thread()];
  if (!kWrong) cuda::__syncthreads();
  p.out[Thread()] = Shared()[kThreads - 1 - Thread()];
}

TEST_P(ShadowTest, WarpsWithoutABarrierBetweenThem) {
  EXPECT_THAT(FaultOf({ReadsAcross<false>}), IsEmpty());
  EXPECT_THAT(FaultOf({ReadsAcross<true>}),
              AnyOf(HasSubstr("it races with a"), HasSubstr("what nothing has written")));
}

template <bool kWrong>
void ReadsInWarp(Memory p) {
  Begin();
  Shared()[Thread()] = p.in[Thread()];
  if (kWrong) cuda::__shfl_xor_sync(cuda::kFullMask, 1.0F, 1);  // does not order memory
  if (!kWrong) cuda::__syncwarp();
  p.out[Thread()] = Shared()[Thread() ^ 1];
}

TEST_P(ShadowTest, LanesThatMeetAtAShuffleAlone) {
  EXPECT_THAT(FaultOf({ReadsInWarp<false>}), IsEmpty());
  EXPECT_THAT(FaultOf({ReadsInWarp<true>}), HasSubstr("it races with a write of another thread"));
}

// Reads first: the write is reported as the race.
template <bool kWrong>
void WritesWhatOthersRead(Memory p) {
  Begin();
  Shared()[Thread()] = p.in[Thread()];
  cuda::__syncthreads();
  const uint32_t x = Shared()[(Thread() + 33) % kThreads];
  if (!kWrong) cuda::__syncthreads();
  Shared()[Thread()] = x;
  p.out[Thread()] = Shared()[Thread()];
}

TEST_P(ShadowTest, AWriteOfWhatAnotherThreadMayStillRead) {
  EXPECT_THAT(FaultOf({WritesWhatOthersRead<false>}), IsEmpty());
  EXPECT_THAT(FaultOf({WritesWhatOthersRead<true>}), HasSubstr("it races with a"));
}

TEST_P(ShadowTest, BlocksThatWriteTheSamePlace) {
  const auto kernel = [](Memory p) {
    Begin();
    if (Thread() == 0) p.out[int(blockIdx.x) / 2] = 7;
  };
  EXPECT_THAT(FaultOf({kernel}), IsEmpty());
  EXPECT_THAT(FaultOf({kernel}, 2), HasSubstr("it races with a write of another block"));
}

TEST_P(ShadowTest, ABlockThatReadsWhatAnotherWrites) {
  const auto kernel = [](Memory p) {
    Begin();
    p.in[int(blockIdx.x) * kThreads + Thread()] = p.in[(int(blockIdx.x) ^ 1) * kThreads + Thread()];
  };
  EXPECT_THAT(FaultOf({kernel}), IsEmpty());
  EXPECT_THAT(FaultOf({kernel}, 2), HasSubstr("of another block"));
}

TEST_P(ShadowTest, NeighboursInAWordDoNotRace) {
  const auto kernel = [](Memory p) {
    Begin();
    auto* const bytes = reinterpret_cast<unsigned char*>(p.in);
    bytes[2 * Thread() + int(blockIdx.x)] += 1;
  };
  EXPECT_THAT(FaultOf({kernel}, 2), IsEmpty());
}

TEST_P(ShadowTest, ACounterThatIsReadBeforeTheBarrier) {
  const auto counts = [](Memory p) {
    Begin();
    if (Thread() == 0) Shared()[0] = 0;
    cuda::__syncthreads();
    cuda::atomicAdd(reinterpret_cast<int*>(Shared()), 1);
    cuda::__syncthreads();
    p.out[Thread()] = Shared()[0];
  };
  const auto reads = [](Memory p) {
    Begin();
    if (Thread() == 0) Shared()[0] = 0;
    cuda::__syncthreads();
    cuda::atomicAdd(reinterpret_cast<int*>(Shared()), 1);
    p.out[Thread()] = Shared()[0];
  };
  EXPECT_THAT(FaultOf({counts}), IsEmpty());
  EXPECT_THAT(FaultOf({reads}), HasSubstr("it races with a"));
}

// The copy may write at any time until it is waited for.
template <bool kWrong>
void CopiesTooEarly(Memory p) {
  Begin();
  Shared()[Thread()] = 5;
  cuda::__syncthreads();
  const uint32_t x = Shared()[Thread()];
  if (!kWrong) cuda::__syncthreads();
  if (Thread() < kThreads / 4) cuda::CpAsync16(Shared() + 4 * Thread(), p.in, true);
  cuda::CpAsyncCommit();
  cuda::CpAsyncWait<0>();
  p.out[Thread()] = x;
}

TEST_P(ShadowTest, ACopyIntoWhatOthersMayStillRead) {
  EXPECT_THAT(FaultOf({CopiesTooEarly<false>}), IsEmpty());
  EXPECT_THAT(FaultOf({CopiesTooEarly<true>}),
              AnyOf(HasSubstr("it races with a"), HasSubstr("was not waited for")));
}

TEST_P(ShadowTest, AReadOfWhatACopyMayStillWrite) {
  const auto kernel = [](Memory p) {
    Begin();
    if (Thread() < kThreads / 4) cuda::CpAsync16(Shared() + 4 * Thread(), p.in, true);
    cuda::CpAsyncCommit();
    if (Thread() == 0) p.out[0] = Shared()[3];
    cuda::CpAsyncWait<0>();
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("copy that was not waited for"));
}

TEST_P(ShadowTest, ALoadThatIsNotAligned) {
  const auto kernel = [](Memory p) {
    Begin();
    const auto words = cuda::LoadVector<cuda::Words4>(p.in + 2);
    if (Thread() == 0) cuda::StoreVector(p.out, words);
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("a vector's load of an address that is no multiple"));
}

TEST_P(ShadowTest, AStoreThatIsNotAligned) {
  const auto kernel = [](Memory p) {
    Begin();
    const auto words = cuda::LoadVector<cuda::Words4>(p.in);
    if (Thread() == 0) cuda::StoreVector(p.out + 1, words);
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("a vector's store of an address that is no multiple"));
}

TEST_P(ShadowTest, AWordThatIsNotAligned) {
  const auto kernel = [](Memory p) {
    Begin();
    auto* const bytes = reinterpret_cast<unsigned char*>(p.out);
    if (Thread() == 0) *reinterpret_cast<uint32_t*>(bytes + 2) = 1;
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("no multiple of 4"));
}

TEST_P(ShadowTest, MemoryThatIsNotTheDevices) {
  const auto read = [](Memory p) {
    Begin();
    p.out[Thread()] = p.host[Thread()];
  };
  EXPECT_THAT(FaultOf({read}), HasSubstr("a read of what is neither shared nor device memory"));
}

TEST_P(ShadowTest, AWriteBehindSharedMemory) {
  const auto kernel = [](Memory) {
    Begin();
    if (Thread() == 0) Shared()[kThreads] = 1;
  };
  EXPECT_THAT(FaultOf({kernel}), HasSubstr("a write to what is neither shared nor device memory"));
}

}  // namespace
}  // namespace bulkhead::emulator
