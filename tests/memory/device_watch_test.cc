#include "memory/device_watch.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

class DeviceWatchTest : public testing::Test {
 protected:
  DeviceWatch::Options Options(absl::Duration period) {
    return {.device = "GPU-a",
            .free_bytes = [this]() -> absl::StatusOr<int64_t> {
              ++looks_;
              if (free_bytes_ < 0) return absl::InternalError("it fell off the bus");
              return free_bytes_.load();
            },
            .others = [] { return "python (pid 7)"; },
            .period = period};
  }

  std::atomic<int64_t> free_bytes_{8 * kGiB};
  std::atomic<int> looks_{0};
};

TEST_F(DeviceWatchTest, SaysNothingWhileFreeMemoryIsConstantToTheByte) {
  DeviceWatch watch(Options(absl::InfiniteDuration()), 8 * kGiB);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(watch.Look(), "");
  EXPECT_EQ(watch.reading().least_free_bytes, 8 * kGiB);
  free_bytes_ -= 1;
  EXPECT_NE(watch.Look(), "");
}

TEST_F(DeviceWatchTest, NamesWhatIsMissingAndWhoIsThereOnceForEachChange) {
  DeviceWatch watch(Options(absl::InfiniteDuration()), 8 * kGiB);
  free_bytes_ = 6 * kGiB;
  const std::string line = watch.Look();
  EXPECT_THAT(line, HasSubstr("GPU-a has 6.0 GiB free, 2.0 GiB less"));
  EXPECT_THAT(line, HasSubstr("python (pid 7)"));
  EXPECT_EQ(watch.Look(), "");
  free_bytes_ = 8 * kGiB;
  EXPECT_THAT(watch.Look(), HasSubstr("all that it had"));
  EXPECT_EQ(watch.reading().least_free_bytes, 6 * kGiB);
  EXPECT_EQ(watch.reading().free_bytes, 8 * kGiB);
}

TEST_F(DeviceWatchTest, ADeviceThatDoesNotAnswerIsSaidOnceAndCounted) {
  DeviceWatch watch(Options(absl::InfiniteDuration()), 8 * kGiB);
  free_bytes_ = -1;
  EXPECT_THAT(watch.Look(), HasSubstr("fell off the bus"));
  EXPECT_EQ(watch.Look(), "");
  EXPECT_EQ(watch.reading().failed_looks_total, 2);
  EXPECT_EQ(watch.reading().free_bytes, 8 * kGiB);  // last known value
}

TEST_F(DeviceWatchTest, ItsThreadLooksByItselfAndEndsWithIt) {
  {
    const DeviceWatch watch(Options(absl::Microseconds(10)), 8 * kGiB);
    while (looks_ < 3) std::this_thread::yield();
  }
  const int looks = looks_;
  std::this_thread::yield();
  EXPECT_EQ(looks_, looks);
}

}  // namespace
}  // namespace bulkhead
