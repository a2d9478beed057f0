#include "tests/support/emulator/emulated_device.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::emulator {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int64_t kGranule = 64 << 10;

struct AddParameters {
  int32_t* numbers;
  int32_t addend;
};

void AddKernel(AddParameters p) {
  cuda::GridDependencySynchronize();
  p.numbers[int(threadIdx.x)] += p.addend;
}

const CudaKernelOf<AddParameters> kAdd = cuda::KernelOf<1024>("add", AddKernel);

// A driver with room for `granules` and one of them mapped.
class EmulatedDeviceTest : public testing::TestWithParam<bool> {
 protected:
  EmulatedDeviceTest() : driver_({.total_bytes = 4 * kGranule, .late = GetParam()}) {
    range_ = driver_.Reserve(8 * kGranule).value();
    EXPECT_TRUE(driver_.Map(range_, kGranule).ok());
    numbers_ = reinterpret_cast<int32_t*>(range_);
  }
  ~EmulatedDeviceTest() override {
    driver_.Unmap(range_, kGranule);
    driver_.ReleaseRange(range_, 8 * kGranule);
  }

  void Add(int32_t addend) {
    Enqueue(driver_, kAdd, {.block = {32, 1, 1}}, AddParameters{numbers_, addend});
  }
  std::vector<int32_t> Numbers() {
    std::vector<int32_t> numbers(32);
    driver_.CopyToHost(range_, numbers.data(), 32 * sizeof(int32_t));
    EXPECT_TRUE(driver_.Synchronize().ok());
    return numbers;
  }

  EmulatedCudaDriver driver_;
  std::byte* range_ = nullptr;
  int32_t* numbers_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(AtOnceAndLate, EmulatedDeviceTest, testing::Bool());

void OtherKernel(AddParameters) {}

TEST_P(EmulatedDeviceTest, LaunchesNothingUnloadedOnceSomethingWasLoaded) {
  Add(1);
  EXPECT_TRUE(driver_.Synchronize().ok());
  driver_.Load(cuda::KernelOf<1024>("other", OtherKernel).kernel);
  Add(1);
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("kernel add is launched and was not"));
}

TEST_P(EmulatedDeviceTest, MapsNoMoreThanTheDeviceHas) {
  EXPECT_EQ(driver_.Memory()->free_bytes, 3 * kGranule);
  driver_.set_others_bytes(2 * kGranule);
  EXPECT_EQ(driver_.Memory()->free_bytes, kGranule);
  EXPECT_EQ(driver_.Map(range_ + kGranule, 2 * kGranule).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(driver_.Map(range_ + kGranule, kGranule).ok());
  EXPECT_EQ(driver_.Memory()->free_bytes, 0);
  driver_.Unmap(range_ + kGranule, kGranule);
  EXPECT_EQ(driver_.Memory()->free_bytes, kGranule);
}

TEST_P(EmulatedDeviceTest, MemoryThatNobodyWroteIsNaN) { EXPECT_THAT(Numbers(), Each(-1)); }

TEST_P(EmulatedDeviceTest, WorkRunsInTheOrderOfTheQueue) {
  driver_.Fill(range_, std::byte{0}, kGranule);
  Add(3);
  driver_.Copy(range_, range_ + 1024, 128);
  Add(4);
  EXPECT_THAT(Numbers(), Each(7));
  EXPECT_THAT(std::vector<int32_t>(numbers_ + 256, numbers_ + 288), Each(3));
}

TEST_P(EmulatedDeviceTest, ALibrarysWorkHasItsPlaceInTheQueue) {
  driver_.Fill(range_, std::byte{0}, kGranule);
  driver_.EnqueueForLibrary({{range_, kGranule}}, [this] {
    for (int i = 0; i < 32; ++i) numbers_[i] = numbers_[i] * 10 + 1;
    return absl::OkStatus();
  });
  Add(4);
  EXPECT_THAT(Numbers(), Each(5));
  driver_.EnqueueForLibrary({{range_, kGranule + 1}}, [] { return absl::OkStatus(); });
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("use by a library of addresses without"));
}

TEST_P(EmulatedDeviceTest, AFaultThatALibraryReportsIsFinal) {
  driver_.ReportFault(absl::InternalError("the library is lost"));
  driver_.ReportFault(absl::InternalError("another"));
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("the library is lost"));
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("the library is lost"));
}

TEST_P(EmulatedDeviceTest, ACopyReadsItsHostMemoryWhenItRuns) {
  std::vector<int32_t> host(32, 5);
  driver_.CopyToDevice(host.data(), range_, 128);
  host.assign(32, 6);  // before the wait: seen by a late queue
  EXPECT_THAT(Numbers(), Each(GetParam() ? 6 : 5));
}

TEST_P(EmulatedDeviceTest, ACopyToPageableMemoryWaitsForTheQueueAndOneToPinnedMemoryDoesNot) {
  std::byte* const pinned = driver_.AllocateHost(128).value();
  std::vector<int32_t> pageable(32);
  driver_.Fill(range_, std::byte{0}, kGranule);
  Add(1);
  driver_.CopyToHost(range_, pinned, 128);
  EXPECT_EQ(driver_.launches(), GetParam() ? 0 : 1);
  driver_.CopyToHost(range_, pageable.data(), 128);
  EXPECT_EQ(driver_.launches(), 1);
  EXPECT_TRUE(driver_.Synchronize().ok());
  EXPECT_THAT(pageable, Each(1));
  driver_.FreeHost(pinned);
}

TEST_P(EmulatedDeviceTest, WorkThatNeverEndsLetsNoEventPassAndFaultsWhoWaitsForIt) {
  const CudaEvent before = driver_.NewEvent();
  const CudaEvent behind = driver_.NewEvent();
  driver_.Fill(range_, std::byte{0}, kGranule);
  driver_.Record(before);
  driver_.EnqueueEndless();
  Add(1);
  driver_.Record(behind);
  EXPECT_TRUE(driver_.HostWait(before).ok());
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(driver_.Query(behind));
  EXPECT_EQ(driver_.launches(), 0);
  int32_t number = 0;
  driver_.CopyToHost(range_, &number, sizeof(number));
  EXPECT_TRUE(driver_.Query(behind));  // the device is lost
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("waits for work that never ends"));
}

TEST_P(EmulatedDeviceTest, AnEventHasPassedWhenItsWorkIsDone) {
  const CudaEvent event = driver_.NewEvent();
  EXPECT_TRUE(driver_.Query(event));
  driver_.Fill(range_, std::byte{0}, kGranule);
  Add(1);
  driver_.Record(event);
  Add(1);
  EXPECT_EQ(driver_.Query(event), !GetParam());
  EXPECT_TRUE(driver_.HostWait(event).ok());
  EXPECT_TRUE(driver_.Query(event));
  EXPECT_EQ(numbers_[0], GetParam() ? 1 : 2);  // a late queue ran up to the event
}

TEST_P(EmulatedDeviceTest, WhoAsksOftenEnoughSeesTheEventPass) {
  const CudaEvent event = driver_.NewEvent();
  for (int i = 0; i < 3; ++i) Add(1);
  driver_.Record(event);
  int questions = 1;
  while (!driver_.Query(event)) ++questions;
  EXPECT_EQ(questions, GetParam() ? 4 : 1);
}

TEST_P(EmulatedDeviceTest, AGraphRunsWithItsParametersAndTheContentsOfTheTime) {
  driver_.Fill(range_, std::byte{0}, kGranule);
  std::byte* const pinned = driver_.AllocateHost(128).value();
  driver_.BeginCapture();
  driver_.CopyToDevice(pinned, range_, 128);
  Add(2);
  const CudaGraph graph = driver_.EndCapture().value();
  EXPECT_THAT(Numbers(), Each(0));  // captured, not run
  std::vector<int32_t> tens(32, 10);
  std::memcpy(pinned, tens.data(), 128);
  driver_.LaunchGraph(graph);
  EXPECT_THAT(Numbers(), Each(12));
  driver_.LaunchGraph(graph);
  Add(1);
  EXPECT_THAT(Numbers(), Each(13));
  driver_.FreeHost(pinned);
}

TEST_P(EmulatedDeviceTest, AGraphThatCopiesFromPageableMemoryIsRefused) {
  std::vector<int32_t> pageable(32);
  driver_.BeginCapture();
  driver_.CopyToDevice(pageable.data(), range_, 128);
  const auto graph = driver_.EndCapture();
  EXPECT_THAT(graph.status().message(), HasSubstr("not pinned"));
}

TEST_P(EmulatedDeviceTest, ACopyBeyondTheMappedMemoryFaultsAtTheWait) {
  driver_.Fill(range_ + kGranule - 4, std::byte{0}, 8);
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("without device memory"));
}

TEST_P(EmulatedDeviceTest, AKernelThatWantsTooMuchSharedMemoryFaults) {
  Enqueue(driver_, kAdd, {.block = {32, 1, 1}, .shared_bytes = 228 << 10},
          AddParameters{numbers_, 1});
  EXPECT_THAT(driver_.Synchronize().message(), HasSubstr("of shared memory"));
}

TEST_P(EmulatedDeviceTest, AfterAFaultNothingRunsAnyMore) {
  driver_.Fill(range_, std::byte{0}, kGranule);
  Enqueue(driver_, kAdd, {.block = {33, 1, 1}}, AddParameters{numbers_, 1});
  EXPECT_FALSE(driver_.Synchronize().ok());
  Add(1);
  EXPECT_FALSE(driver_.Synchronize().ok());
  EXPECT_EQ(numbers_[0], 0);
}

TEST(GuardedDeviceDeathTest, TheHostFaultsWhenItTouchesDeviceMemory) {
  EmulatedCudaDriver driver({.guarded = true});
  std::byte* const range = driver.Reserve(kGranule).value();
  ASSERT_TRUE(driver.Map(range, kGranule).ok());
  driver.Fill(range, std::byte{3}, kGranule);
  std::byte copied{0};
  driver.CopyToHost(range, &copied, 1);
  EXPECT_TRUE(driver.Synchronize().ok());
  EXPECT_EQ(copied, std::byte{3});
  EXPECT_DEATH(*static_cast<volatile std::byte*>(range) = copied, "");
  driver.Unmap(range, kGranule);
  driver.ReleaseRange(range, kGranule);
}

}  // namespace
}  // namespace bulkhead::emulator
