#include "launcher/group/logits_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

absl::Status WriteAll(const std::string& path, int fd, const char* data, int64_t bytes,
                      int64_t offset) {
  while (bytes > 0) {
    const ssize_t written = pwrite(fd, data, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return WithExitCode(absl::DataLossError(absl::StrCat("writing --logits ", path,
                                                           " failed: ", std::strerror(errno),
                                                           "; the file is not whole")),
                          ExitCode::kClientError);
    }
    data += written;
    bytes -= written;
    offset += written;
  }
  return absl::OkStatus();
}

class TensorSink final : public LogitsSink {
 public:
  TensorSink(std::string path, int fd, int64_t offset)
      : path_(std::move(path)), fd_(fd), offset_(offset) {}
  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override {
    const int64_t row_bytes = vocab_size * static_cast<int64_t>(sizeof(float));
    return WriteAll(path_, fd_, reinterpret_cast<const char*>(logits), rows * row_bytes,
                    offset_ + first_position * row_bytes);
  }

 private:
  std::string path_;
  int fd_;
  int64_t offset_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LogitsFile>> LogitsFile::Create(const std::string& path,
                                                               const std::vector<Tensor>& tensors,
                                                               int64_t vocab_size) {
  const auto refuse = [&] {
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat("cannot write --logits ", path,
                                                                ": ", std::strerror(errno))),
                        ExitCode::kUsage);
  };
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return refuse();
  auto file = absl::WrapUnique(new LogitsFile(fd));
  nlohmann::json header = nlohmann::json::object();
  std::vector<int64_t> begins;
  int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    begins.push_back(end);
    end += tensor.num_tokens * vocab_size * static_cast<int64_t>(sizeof(float));
    header[absl::StrCat("logits.", tensor.index)] = {{"dtype", "F32"},
                                                     {"shape", {tensor.num_tokens, vocab_size}},
                                                     {"data_offsets", {begins.back(), end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  std::string front(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  front += text;
  const auto front_bytes = static_cast<int64_t>(front.size());
  if (ftruncate(fd, front_bytes + end) != 0) return refuse();
  BH_RETURN_IF_ERROR(WriteAll(path, fd, front.data(), front_bytes, 0));
  for (const int64_t begin : begins) {
    file->sinks_.push_back(std::make_unique<TensorSink>(path, fd, front_bytes + begin));
  }
  return file;
}

LogitsFile::~LogitsFile() { close(fd_); }

}  // namespace bulkhead
