#include "memory/nvidia_driver.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

// A machine's files, in a temporary folder.
class NvidiaDriverTest : public testing::Test {
 protected:
  NvidiaDriverTest() : root_(testing::TempDir() + "nvidia_driver_test") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/dev");
    std::filesystem::create_directories(root_ + "/sys/module/nvidia");
  }
  ~NvidiaDriverTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::ofstream(root_ + path) << text;
  }
  const std::string root_;
};

TEST_F(NvidiaDriverTest, AGpuIsADeviceFileWithANumber) {
  EXPECT_FALSE(HasNvidiaGpu(root_));
  EXPECT_FALSE(HasNvidiaGpu(root_ + "/nothing"));
  for (const char* name : {"nvidia", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia0x"}) {
    Write(std::string("/dev/") + name, "");
  }
  EXPECT_FALSE(HasNvidiaGpu(root_));
  Write("/dev/nvidia3", "");
  EXPECT_TRUE(HasNvidiaGpu(root_));
}

TEST_F(NvidiaDriverTest, AnOldDriverIsNamedWithTheOneThatIsNeededAndTheRemedy) {
  Write("/sys/module/nvidia/version", "535.104.05\n");
  EXPECT_EQ(NvidiaDriverVersion(root_), "535.104.05");
  Write("/dev/nvidia0", "");
  const absl::Status old = OldNvidiaDriver(12020, 13000, root_);
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(old.message(),
            "the NVIDIA driver 535.104.05 is for CUDA 12.2 at most, and this build with CUDA 13.0 "
            "needs driver 580 or later; update the driver, or use a build with an older CUDA");
  EXPECT_THAT(std::string(OldNvidiaDriver(11080, 12080, root_).message()),
              HasSubstr("CUDA 12.8 needs driver 525 or later"));
}

TEST_F(NvidiaDriverTest, WithoutAGpuAnOldDriverKeepsNobodyFromUsingOne) {
  const absl::Status old = OldNvidiaDriver(12020, 13000, root_);
  EXPECT_EQ(old.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(old.message()), HasSubstr("the NVIDIA driver is for CUDA 12.2"));
}

}  // namespace
}  // namespace bulkhead
