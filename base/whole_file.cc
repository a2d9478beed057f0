#include "base/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxInputBytes = size_t{64} << 20;
constexpr size_t kPieceBytes = size_t{1} << 16;

absl::Status Usage(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

// The status for errno, with `name`.
absl::Status Unreadable(const std::string& name) {
  return Usage(errno == EISDIR ? absl::StrCat(name, " is a directory; a file is required")
                               : absl::StrCat("cannot read ", name, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& name, size_t most_bytes) {
  std::string text;
  size_t got = kPieceBytes;
  while (got == kPieceBytes && text.size() <= most_bytes) {
    const size_t size = text.size();
    text.resize(size + kPieceBytes);
    got = std::fread(text.data() + size, 1, kPieceBytes, file);
    text.resize(size + got);
  }
  if (std::ferror(file) != 0) return Unreadable(name);
  if (text.size() > most_bytes) {
    return Usage(
        absl::StrCat(name, " is larger than ", FormatBytes(most_bytes), ", which is the limit"));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (file == nullptr) return Unreadable(path);
  return ReadAll(file.get(), path, most_bytes);
}

absl::StatusOr<std::ifstream> OpenToRead(absl::string_view flag, const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  // A directory can be opened; its first read fails.
  if (!file.is_open() || (file.peek(), file.bad())) {
    return Unreadable(absl::StrCat(flag, " ", path));
  }
  file.clear();
  return file;
}

absl::StatusOr<std::string> ReadStandardInput() {
  return ReadAll(stdin, "standard input", kMaxInputBytes);
}

absl::Status CheckStandardInput() {
  if (std::ferror(stdin) == 0) return absl::OkStatus();
  return Usage("standard input cannot be read; use a file, a pipe or a terminal");
}

absl::Status WriteWholeFile(absl::string_view flag, const std::string& path,
                            absl::string_view text) {
  std::error_code ignored;
  const auto type = std::filesystem::symlink_status(path, ignored).type();
  const bool replaces =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  const std::string beside = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(replaces ? beside : path, std::ios::trunc);
  // In a folder where no file can be created an existing one may still be writable.
  const bool is_beside = replaces && file.is_open();
  if (replaces && !is_beside) file.open(path, std::ios::trunc);
  file << text << std::flush;
  if (!file.good() || (is_beside && std::rename(beside.c_str(), path.c_str()) != 0)) {
    const absl::Status why = CannotWrite(flag, path);
    if (is_beside) std::remove(beside.c_str());
    return why;
  }
  return absl::OkStatus();
}

absl::Status CheckCanWrite(absl::string_view flag, const std::string& path) {
  const bool is_there = access(path.c_str(), F_OK) == 0;
  if (!std::ofstream(path, std::ios::app)) return CannotWrite(flag, path);
  if (!is_there) std::remove(path.c_str());
  return absl::OkStatus();
}

absl::Status CannotWrite(absl::string_view flag, const std::string& path) {
  return Usage(absl::StrCat("cannot write ", flag, " ", path, ": ", std::strerror(errno)));
}

}  // namespace bulkhead
