#include "memory/gpu_processes.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

constexpr char kFakeNvml[] = BH_FAKE_NVML;

TEST(GpuProcessesTest, NamesTheOthersAndLeavesOutOurOwn) {
  const auto others = OtherGpuProcesses("GPU-1111", {getpid()}, kFakeNvml);
  ASSERT_TRUE(others.ok()) << others.status();
  ASSERT_EQ(others->size(), 2);
  EXPECT_EQ((*others)[0].pid, getppid());
  EXPECT_FALSE((*others)[0].name.empty());
  EXPECT_EQ((*others)[0].used_bytes, int64_t{3} << 30);
  EXPECT_EQ((*others)[1].name, "");
  EXPECT_EQ((*others)[1].used_bytes, -1);
}

TEST(GpuProcessesTest, TellsThemInOneLine) {
  EXPECT_EQ(GpuProcessesText({{4711, "python", int64_t{3} << 30}, {12, "", -1}}),
            "python (pid 4711) 3.0 GiB, pid 12");
  EXPECT_EQ(GpuProcessesText({}), "none known to NVML");
}

TEST(GpuProcessesTest, SaysWhatTheLibraryDoesNotKnow) {
  EXPECT_EQ(OtherGpuProcesses("GPU-3333", {}, kFakeNvml).status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status lost = OtherGpuProcesses("GPU-2222", {}, kFakeNvml).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("GPU is lost"));
}

TEST(GpuProcessesTest, AMachineWithoutTheLibraryIsNoFailureOfOurs) {
  const absl::Status absent = OtherGpuProcesses("GPU-1111", {}, "libno-such-nvml.so.1").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnimplemented);
  // An existing library that is not NVML.
  EXPECT_EQ(OtherGpuProcesses("GPU-1111", {}, "libc.so.6").status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace bulkhead
