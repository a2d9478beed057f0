#include "memory/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(50);
constexpr absl::Duration kLogAfter = absl::Seconds(2);  // longer than most starts take

// Another user's file in a sticky folder can be opened, but not with O_CREAT.
int OpenOrCreate(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  const int there = open(path.c_str(), kFlags);
  if (there >= 0 || errno != ENOENT) return there;
  const int made = open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666);
  if (made >= 0) {
    fchmod(made, 0666);  // regardless of the umask
    return made;
  }
  return errno == EEXIST ? open(path.c_str(), kFlags) : -1;
}

// The pid written by the holder, or 0.
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
  // Failing to record the holder must not prevent the start.
  if (ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) < 0) return;
}

bool IsShared(const char* folder) {
  struct stat mode;
  struct statvfs system;
  constexpr mode_t kStickyForAll = S_ISVTX | S_IRWXU | S_IRWXG | S_IRWXO;
  return stat(folder, &mode) == 0 && S_ISDIR(mode.st_mode) &&
         (mode.st_mode & kStickyForAll) == kStickyForAll && statvfs(folder, &system) == 0 &&
         (system.f_flag & ST_RDONLY) == 0;
}

}  // namespace

std::string FirstSharedFolder(absl::Span<const char* const> folders) {
  const auto* const found = std::find_if(folders.begin(), folders.end(), IsShared);
  return found != folders.end() ? *found : folders.back();
}

DeviceLock::DeviceLock(int fd, std::string device, std::string remedy)
    : fd_(fd), device_(std::move(device)), remedy_(std::move(remedy)) {}

absl::StatusOr<std::unique_ptr<DeviceLock>> DeviceLock::Open(absl::string_view name,
                                                             const std::string& folder,
                                                             std::string device,
                                                             std::string remedy) {
  const std::string path = absl::StrCat(folder, "/bulkhead-", name, ".lock");
  const int fd = OpenOrCreate(path);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat("cannot open ", path, " to start alone on ", device,
                                               ": ", std::strerror(errno)));
  }
  return std::unique_ptr<DeviceLock>(new DeviceLock(fd, std::move(device), std::move(remedy)));
}

absl::StatusOr<std::unique_ptr<DeviceLock>> DeviceLock::OpenGpu(absl::string_view uuid,
                                                                const std::string& folder) {
  return Open(uuid, folder, std::string(uuid),
              "wait for it or end it, or choose another GPU with CUDA_VISIBLE_DEVICES");
}

absl::StatusOr<std::unique_ptr<DeviceLock>> DeviceLock::OpenHost(const std::string& folder) {
  return Open("host", folder, "this host", "wait for it or end it");
}

std::string DeviceLock::FileId() const {
  struct stat file;
  return fstat(fd_, &file) == 0 ? absl::StrCat(file.st_dev, ":", file.st_ino) : "";
}

absl::Status DeviceLock::Take(absl::Duration timeout, const std::function<bool()>& cancelled) {
  const absl::Time begin = absl::Now();
  for (bool logged = false; flock(fd_, LOCK_EX | LOCK_NB) != 0;) {
    if (cancelled && cancelled()) return absl::CancelledError("the start was cancelled");
    const absl::Duration waited = absl::Now() - begin;
    const std::string holder = HolderText(HolderOf(fd_));
    if (waited >= timeout) {
      return WithExitCode(absl::DeadlineExceededError(absl::StrCat(
                              holder, " has been starting on ", device_, " for more than ",
                              absl::FormatDuration(timeout), "; ", remedy_)),
                          ExitCode::kGroupNotUp);
    }
    if (!logged && waited >= kLogAfter) {
      BH_LOG(kInfo) << holder << " starts on " << device_ << "; waiting until it is up";
      logged = true;
    }
    absl::SleepFor(kLookAgain);
  }
  WriteHolder(fd_);
  return absl::OkStatus();
}

DeviceLock::~DeviceLock() { close(fd_); }

}  // namespace bulkhead
