#include "memory/device_lock.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

class DeviceLockTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/device_lock_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    unlink(PathOf("GPU-a").c_str());
    unlink(PathOf("GPU-b").c_str());
    rmdir(folder_.c_str());
  }
  std::string PathOf(const std::string& uuid) const {
    return absl::StrCat(folder_, "/bulkhead-", uuid, ".lock");
  }
  absl::StatusOr<std::unique_ptr<DeviceLock>> Acquire(const std::string& uuid) const {
    BH_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLock> lock, DeviceLock::OpenGpu(uuid, folder_));
    BH_RETURN_IF_ERROR(lock->Take(absl::ZeroDuration()));
    return lock;
  }

  std::string folder_;
};

TEST_F(DeviceLockTest, OneHolderAtATimeAndTheOtherIsToldWho) {
  const auto first = Acquire("GPU-a");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Acquire("GPU-a").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ExitCodeOf(second), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", getpid())));
  EXPECT_THAT(std::string(second.message()), HasSubstr("GPU-a"));
  EXPECT_TRUE(Acquire("GPU-b").ok());
}

TEST_F(DeviceLockTest, ItIsFreeAgainWhenItsHolderLetsGo) {
  { ASSERT_TRUE(Acquire("GPU-a").ok()); }
  EXPECT_TRUE(Acquire("GPU-a").ok());
}

TEST_F(DeviceLockTest, ItIsFreeAgainWhenItsHolderIsKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto lock = Acquire("GPU-a");
    const char answer = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_FALSE(Acquire("GPU-a").ok());
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(Acquire("GPU-a").ok());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(DeviceLockTest, AWaitEndsWhenTheHolderLetsGo) {
  auto first = Acquire("GPU-a");
  ASSERT_TRUE(first.ok());
  std::thread waiter(
      [&] { EXPECT_TRUE((*DeviceLock::OpenGpu("GPU-a", folder_))->Take(absl::Minutes(5)).ok()); });
  first->reset();
  waiter.join();
}

TEST_F(DeviceLockTest, EveryUserMayLockAGpuThatAnotherHasLockedBefore) {
  const mode_t mask = umask(077);
  { ASSERT_TRUE(Acquire("GPU-a").ok()); }
  umask(mask);
  struct stat file;
  ASSERT_EQ(stat(PathOf("GPU-a").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0666);
}

TEST_F(DeviceLockTest, AHostHasALockOfItsOwnAndSaysSo) {
  const auto gpu = Acquire("GPU-a");
  const auto first = DeviceLock::OpenHost(folder_);
  const auto second = DeviceLock::OpenHost(folder_);
  ASSERT_TRUE(gpu.ok() && first.ok() && second.ok());
  EXPECT_EQ((*first)->FileId(), (*second)->FileId());
  EXPECT_NE((*first)->FileId(), (*gpu)->FileId());
  ASSERT_TRUE((*first)->Take(absl::ZeroDuration()).ok());
  EXPECT_EQ((*second)->Take(absl::Minutes(5), [] { return true; }).code(),
            absl::StatusCode::kCancelled);
  const absl::Status refused = (*second)->Take(absl::ZeroDuration());
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("starting on this host"));
  unlink(PathOf("host").c_str());
}

TEST_F(DeviceLockTest, ALinkInPlaceOfTheFileIsRefused) {
  ASSERT_EQ(symlink("/dev/null", PathOf("host").c_str()), 0);
  EXPECT_EQ(DeviceLock::OpenHost(folder_).status().code(), absl::StatusCode::kUnavailable);
  unlink(PathOf("host").c_str());
}

TEST_F(DeviceLockTest, LocksAreInTheFirstFolderThatEveryUserMayUse) {
  const char* const folder = folder_.c_str();
  ASSERT_EQ(chmod(folder, 01777), 0);
  EXPECT_EQ(FirstSharedFolder({"/nonexistent", folder, "/tmp"}), folder_);
  for (const mode_t mode : {01755, 0777}) {  // one user's alone; others could delete the file
    ASSERT_EQ(chmod(folder, mode), 0);
    EXPECT_EQ(FirstSharedFolder({folder, "/tmp"}), "/tmp") << mode;
  }
  EXPECT_EQ(FirstSharedFolder({"/nonexistent", folder}), folder_);
  EXPECT_EQ(FirstSharedFolder({"/etc/hostname", "/sys", "/tmp"}), "/tmp");
  EXPECT_EQ(LockFolder(), FirstSharedFolder({"/run/lock", "/tmp"}));
}

TEST_F(DeviceLockTest, AFolderThatIsNotThereIsSaid) {
  const absl::Status status = DeviceLock::OpenGpu("GPU-a", "/nonexistent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/bulkhead-GPU-a.lock"));
}

}  // namespace
}  // namespace bulkhead
