// LocalFile: a regular file, opened for reading with pread. Symbolic links are followed (the
// Hugging Face cache is made of them); anything that is not a regular file is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

class LocalFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file) or UNAVAILABLE, naming
  // `path`.
  static absl::StatusOr<LocalFile> Open(const std::string& path);
  LocalFile(LocalFile&& other) noexcept;
  LocalFile& operator=(LocalFile&& other) noexcept;
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;
  ~LocalFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened

  // All of [offset, offset + bytes), or DATA_LOSS. Any thread.
  absl::Status ReadAt(int64_t offset, int64_t bytes, std::byte* out) const;

  // Lets the kernel fetch these bytes while others are read.
  void WillRead(int64_t offset, int64_t bytes) const;

  // DATA_LOSS when the file is no longer the size or the version that was opened.
  absl::Status CheckUnchanged() const;

 private:
  LocalFile() = default;

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  int64_t modified_ns_ = 0;
};

// A whole small file. INVALID_ARGUMENT when it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes);

}  // namespace bulkhead
