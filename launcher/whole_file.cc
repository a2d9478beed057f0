#include "launcher/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "memory/bytes.h"
#include "memory/exit_code.h"

namespace bulkhead {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kPieceBytes = size_t{1} << 16;

absl::Status Usage(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const auto unreadable = [&path] {
    return Usage(errno == EISDIR ? absl::StrCat(path, " is a directory; name a file")
                                 : absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (file == nullptr) return unreadable();
  std::string text;
  size_t got = kPieceBytes;
  while (got == kPieceBytes && text.size() <= kMostBytes) {
    const size_t size = text.size();
    text.resize(size + kPieceBytes);
    got = std::fread(text.data() + size, 1, kPieceBytes, file.get());
    text.resize(size + got);
  }
  if (std::ferror(file.get()) != 0) return unreadable();
  if (text.size() > kMostBytes) {
    return Usage(
        absl::StrCat(path, " is larger than ", FormatBytes(kMostBytes), ", which is the limit"));
  }
  return text;
}

absl::Status CheckStandardInput() {
  if (std::ferror(stdin) == 0) return absl::OkStatus();
  return Usage("standard input cannot be read; give a file, a pipe or a terminal");
}

}  // namespace bulkhead
