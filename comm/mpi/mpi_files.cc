#include "comm/mpi/mpi_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;

// Of Open MPI 4 and 5.
constexpr absl::string_view kSegments[] = {"vader_segment.", "sm_segment."};

// Each rank checks that its full segment would fit, although it touches little of it.
constexpr int64_t kFreeForOneBytes = 4'194'312;
constexpr int64_t kTouchedBytes = 128 * 1024;
constexpr int64_t kSlackBytes = 256 * 1024;

void ForEachEntry(const std::string& folder, const std::function<void(const fs::path&)>& visit) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    visit(at->path());
  }
}

// The shared memory files mapped by a process.
std::set<std::string> MappedSegments(const std::string& pid) {
  std::set<std::string> found;
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    for (const absl::string_view kind : kSegments) {
      if (absl::StrContains(line, kind)) found.insert(line.substr(path));
    }
  }
  return found;
}

bool IsMapped(const std::string& path) {
  bool mapped = false;
  ForEachEntry("/proc", [&](const fs::path& process) {
    const std::string pid = process.filename().string();
    int number = 0;
    if (!mapped && absl::SimpleAtoi(pid, &number)) mapped = MappedSegments(pid).count(path) > 0;
  });
  return mapped;
}

bool IsStale(const fs::path& path, mode_t kind, absl::Duration age) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IFMT) == kind &&
         found.st_uid == geteuid() && absl::Now() - absl::TimeFromTimespec(found.st_mtim) > age;
}

bool IsGone(absl::string_view pid_text) {
  int pid = 0;
  return absl::SimpleAtoi(pid_text, &pid) && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

int64_t SegmentBytes(int ranks) { return kFreeForOneBytes + kSlackBytes + ranks * kTouchedBytes; }

std::string SegmentFolder(const LaunchEnvironment& launch, const Environment& environment) {
  if (launch.local_size <= 1) return "";
  const char* const transports = environment("OMPI_MCA_btl");
  if (transports != nullptr) {
    const absl::string_view list = transports;
    const bool named = absl::StrContains(list, "vader") || absl::StrContains(list, "sm");
    if (named == absl::StartsWith(list, "^")) return "";
  }
  const char* const folder = environment("OMPI_MCA_btl_vader_backing_directory");
  return folder != nullptr ? folder : "/dev/shm";
}

absl::Status CheckRoomForSegments(const LaunchEnvironment& launch, const std::string& folder) {
  struct statvfs found;
  if (folder.empty() || statvfs(folder.c_str(), &found) != 0) return absl::OkStatus();
  const int64_t free_bytes =
      static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
  const int64_t needed_bytes = SegmentBytes(launch.local_size);
  if (free_bytes >= needed_bytes) return absl::OkStatus();
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat(
                          folder, " of host ", host, " has ", FormatBytes(free_bytes),
                          " free, and MPI needs ", FormatBytes(needed_bytes), " for ",
                          launch.local_size, " ranks; enlarge it: mount -o remount,size=64m ",
                          folder, ", or docker run --shm-size 64m")),
                      ExitCode::kGroupNotUp);
}

void MpiSegment::RemoveName() {
  if (local_rank_ < 0) return;
  const std::string own = absl::StrCat(".", local_rank_);
  for (const std::string& path : MappedSegments("self")) {
    if (absl::EndsWith(path, own) && unlink(path.c_str()) == 0) path_ = path;
  }
}

void MpiSegment::PutNameBack() const {
  if (path_.empty()) return;
  const int fd = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd >= 0) close(fd);
}

int RemoveLeftovers(const Leftovers& where) {
  int removed = 0;
  std::vector<fs::path> old;
  ForEachEntry(where.segments, [&](const fs::path& path) {
    for (const absl::string_view kind : kSegments) {
      const std::string ours = absl::StrCat(kind, where.host, ".", geteuid(), ".");
      if (absl::StartsWith(path.filename().string(), ours) && IsStale(path, S_IFREG, where.age)) {
        old.push_back(path);
      }
    }
  });
  for (const fs::path& path : old) {
    if (!IsMapped(path.string()) && unlink(path.c_str()) == 0) ++removed;
  }
  old.clear();
  if (where.launches.empty()) return removed;
  ForEachEntry(where.launches, [&](const fs::path& path) {
    const std::string name = path.filename().string();
    absl::string_view pid = name;
    if (!absl::ConsumePrefix(&pid, where.launch_prefix)) return;
    absl::ConsumeSuffix(&pid, absl::StrCat(".", geteuid()));
    if (IsGone(pid) && IsStale(path, S_IFDIR, where.age)) old.push_back(path);
  });
  for (const fs::path& path : old) {
    std::error_code error;
    fs::remove_all(path, error);
    if (!error) ++removed;
  }
  return removed;
}

}  // namespace bulkhead
