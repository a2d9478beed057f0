// LocalFile: a regular file opened for pread. Symbolic links are followed (the Hugging Face cache
// uses them); anything else than a regular file is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

class LocalFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file) or UNAVAILABLE, each with
  // `path`.
  static absl::StatusOr<LocalFile> Open(const std::string& path);
  LocalFile(LocalFile&& other) noexcept;
  LocalFile& operator=(LocalFile&& other) noexcept;
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;
  ~LocalFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // size when it was opened

  // All of [offset, offset + bytes), or DATA_LOSS. Any thread.
  absl::Status ReadAt(int64_t offset, int64_t bytes, std::byte* out) const;

  // Tells the kernel to read these bytes ahead.
  void WillRead(int64_t offset, int64_t bytes) const;

  // DATA_LOSS if the file's size or version has changed since it was opened.
  absl::Status CheckUnchanged() const;

 private:
  LocalFile() = default;

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  int64_t modified_ns_ = 0;
};

// The content of a small file. INVALID_ARGUMENT if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes);

}  // namespace bulkhead
