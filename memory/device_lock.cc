#include "memory/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "memory/exit_code.h"
#include "memory/log.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(50);

// Another user's file may be opened in a sticky folder, but not with O_CREAT.
int OpenOrCreate(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  const int there = open(path.c_str(), kFlags);
  if (there >= 0 || errno != ENOENT) return there;
  const int made = open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666);
  if (made >= 0) {
    fchmod(made, 0666);  // whatever the umask
    return made;
  }
  return errno == EEXIST ? open(path.c_str(), kFlags) : -1;
}

// The pid that the holder wrote, or 0.
int64_t HolderOf(int fd) {
  char text[32] = {};
  int64_t pid = 0;
  const ssize_t bytes = pread(fd, text, sizeof(text) - 1, 0);
  return bytes > 0 && absl::SimpleAtoi(absl::string_view(text, bytes), &pid) ? pid : 0;
}

std::string HolderText(int64_t pid) {
  return pid > 0 ? absl::StrCat("the process ", pid) : "another process";
}

void WriteHolder(int fd) {
  const std::string pid = absl::StrCat(getpid());
  // A holder that cannot be named is no reason not to start.
  if (ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) < 0) return;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLock>> DeviceLock::Acquire(absl::string_view uuid,
                                                                absl::Duration timeout,
                                                                const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/bulkhead-", uuid, ".lock");
  const int fd = OpenOrCreate(path);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", path, " to start alone on the GPU: ", std::strerror(errno)));
  }
  std::unique_ptr<DeviceLock> lock(new DeviceLock(fd));
  const absl::Time deadline = absl::Now() + timeout;
  for (bool told = false; flock(fd, LOCK_EX | LOCK_NB) != 0; told = true) {
    const std::string holder = HolderText(HolderOf(fd));
    if (absl::Now() >= deadline) {
      return WithExitCode(
          absl::DeadlineExceededError(absl::StrCat(holder, " has been starting on ", uuid,
                                                   " for more than ", absl::FormatDuration(timeout),
                                                   "; wait for it or end it, or choose "
                                                   "another GPU with CUDA_VISIBLE_DEVICES")),
          ExitCode::kGroupNotUp);
    }
    if (!told) BH_LOG(kInfo) << holder << " starts on " << uuid << "; waiting until it is up";
    absl::SleepFor(kLookAgain);
  }
  WriteHolder(fd);
  return lock;
}

DeviceLock::~DeviceLock() { close(fd_); }

}  // namespace bulkhead
