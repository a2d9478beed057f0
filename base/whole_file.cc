#include "base/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
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

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (file == nullptr) return Unreadable(path);
  return ReadAll(file.get(), path, kMaxFileBytes);
}

absl::StatusOr<std::string> ReadStandardInput() {
  return ReadAll(stdin, "standard input", kMaxInputBytes);
}

absl::Status CheckStandardInput() {
  if (std::ferror(stdin) == 0) return absl::OkStatus();
  return Usage("standard input cannot be read; use a file, a pipe or a terminal");
}

absl::Status CannotWrite(absl::string_view flag, const std::string& path) {
  return Usage(absl::StrCat("cannot write ", flag, " ", path, ": ", std::strerror(errno)));
}

}  // namespace bulkhead
