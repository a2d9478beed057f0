#include "comm/mpi/mpi_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string FolderFor(const std::map<std::string, std::string>& variables, int local_size) {
  LaunchEnvironment launch;
  launch.local_size = local_size;
  return SegmentFolder(launch, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(MpiFiles, SegmentsAreWhereSeveralRanksOfAHostSpeakThroughThem) {
  EXPECT_EQ(FolderFor({}, 2), "/dev/shm");
  EXPECT_EQ(FolderFor({}, 1), "");
  EXPECT_EQ(FolderFor({}, 0), "");  // unknown
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl", "self,vader"}}, 2), "/dev/shm");
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl", "self,sm"}}, 2), "/dev/shm");
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl", "self,tcp"}}, 2), "");
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl", "^vader"}}, 2), "");
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl", "^openib"}}, 2), "/dev/shm");
  EXPECT_EQ(FolderFor({{"OMPI_MCA_btl_vader_backing_directory", "/mnt/x"}}, 2), "/mnt/x");
}

TEST(MpiFiles, TooLittleRoomIsRefusedWithBothSizes) {
  LaunchEnvironment launch;
  launch.local_size = 2;
  EXPECT_TRUE(CheckRoomForSegments(launch, "/").ok());
  launch.local_size = 1 << 30;  // more than a folder can hold
  const absl::Status refused = CheckRoomForSegments(launch, "/");
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(" free, and MPI needs 128.0 TiB for"));
}

class LeftoversTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "leftovers.XXXXXX";
    root_ = mkdtemp(name.data());
    fs::create_directories(root_ / "shm");
    fs::create_directories(root_ / "tmp");
  }
  void TearDown() override { fs::remove_all(root_); }

  static void MakeOld(const fs::path& path) {
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  fs::path Segment(const std::string& name) {
    fs::path path = root_ / "shm" / name;
    std::ofstream(path) << "segment";
    MakeOld(path);
    return path;
  }
  fs::path Launch(const std::string& name) {
    fs::path path = root_ / "tmp" / name;
    fs::create_directories(path / "0" / "1");
    std::ofstream(path / "contact.txt") << "uri";
    MakeOld(path);
    return path;
  }
  int Remove(const std::string& launch_prefix = "pid.") {
    return RemoveLeftovers({.segments = root_ / "shm",
                            .host = "a",
                            .launches = root_ / "tmp",
                            .launch_prefix = launch_prefix,
                            .age = absl::Minutes(10)});
  }
  static std::string Ours(const std::string& host, const std::string& kind = "vader") {
    return absl::StrCat(kind, "_segment.", host, ".", geteuid(), ".1dd10001.0");
  }
  // A process that is gone.
  static pid_t GonePid() {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
    return pid;
  }
  fs::path root_;
};

TEST_F(LeftoversTest, WhatADeadLaunchOfThisUserLeftIsRemoved) {
  const fs::path segment = Segment(Ours("a"));
  const fs::path launch = Launch(absl::StrCat("pid.", GonePid()));
  EXPECT_EQ(Remove(), 2);
  EXPECT_FALSE(fs::exists(segment));
  EXPECT_FALSE(fs::exists(launch));
}

TEST_F(LeftoversTest, WhatADeadLaunchOfOpenMpi5LeftIsRemoved) {
  const fs::path segment = Segment(Ours("a", "sm"));
  const fs::path launch = Launch(absl::StrCat("prterun.a.", GonePid(), ".", geteuid()));
  Launch(absl::StrCat("prterun.a.", GonePid(), ".", geteuid() + 1));
  Launch(absl::StrCat("prterun.a.", getpid(), ".", geteuid()));
  Launch(absl::StrCat("pid.", GonePid()));
  EXPECT_EQ(Remove("prterun.a."), 2);
  EXPECT_FALSE(fs::exists(segment));
  EXPECT_FALSE(fs::exists(launch));
}

TEST_F(LeftoversTest, WhatIsYoungOrAnothersOrInUseStays) {
  const fs::path young = Segment(Ours("a"));
  utimensat(AT_FDCWD, young.c_str(), nullptr, 0);
  Segment(absl::StrCat("vader_segment.a.", geteuid() + 1, ".1dd10001.0"));
  Segment(Ours("b"));
  Segment("else");
  Launch(absl::StrCat("pid.", getpid()));
  Launch("jf.1234");
  Launch("pid.12x");
  EXPECT_EQ(Remove(), 0);
}

TEST_F(LeftoversTest, ASegmentThatAProcessMapsStays) {
  const fs::path segment = Segment(Ours("a"));
  const int fd = open(segment.c_str(), O_RDONLY);
  void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  close(fd);
  EXPECT_EQ(Remove(), 0);
  munmap(mapped, 4096);
  EXPECT_EQ(Remove(), 1);
}

TEST_F(LeftoversTest, ALinkLeadsNowhere) {
  const fs::path kept = root_ / "kept";
  std::ofstream(kept) << "mine";
  fs::create_symlink(kept, root_ / "shm" / Ours("a"));
  fs::create_directory_symlink(root_, root_ / "tmp" / absl::StrCat("pid.", GonePid()));
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(fs::exists(kept));
}

}  // namespace
}  // namespace bulkhead
