#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxReadBytes = int64_t{1} << 30;  // Linux reads less than 2 GiB per call

int64_t ModifiedNs(const struct stat& stat) {
  return int64_t{stat.st_mtim.tv_sec} * 1'000'000'000 + stat.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<LocalFile> LocalFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO in place of the checkpoint would block forever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  LocalFile file;
  file.path_ = path;
  file.fd_ = fd;
  struct stat stat;
  if (fstat(fd, &stat) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (!S_ISREG(stat.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  file.bytes_ = stat.st_size;
  file.modified_ns_ = ModifiedNs(stat);
  return file;
}

LocalFile::LocalFile(LocalFile&& other) noexcept { *this = std::move(other); }

LocalFile& LocalFile::operator=(LocalFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

LocalFile::~LocalFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status LocalFile::ReadAt(int64_t offset, int64_t bytes, std::byte* out) const {
  BH_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, out, std::min(bytes, kMaxReadBytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(
          absl::StrCat(absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_)).message(),
                       " at byte ", offset));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset, " although it had ",
                                              bytes_, " when it was opened"));
    }
    offset += got;
    bytes -= got;
    out += got;
  }
  return absl::OkStatus();
}

void LocalFile::WillRead(int64_t offset, int64_t bytes) const {
  posix_fadvise(fd_, offset, bytes, POSIX_FADV_WILLNEED);  // only advice: may fail
}

absl::Status LocalFile::CheckUnchanged() const {
  struct stat stat;
  if (fstat(fd_, &stat) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
  if (stat.st_size == bytes_ && ModifiedNs(stat) == modified_ns_) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, " was changed while it was being loaded: it has ",
                                          stat.st_size, " bytes and had ", bytes_,
                                          "; start again when it is complete"));
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes) {
  BH_ASSIGN_OR_RETURN(const LocalFile file, LocalFile::Open(path));
  if (file.bytes() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file.bytes(), " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  BH_RETURN_IF_ERROR(file.ReadAt(0, file.bytes(), reinterpret_cast<std::byte*>(text.data())));
  return text;
}

}  // namespace bulkhead
