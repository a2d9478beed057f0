// LogitsFile: prompt logits as f32 safetensors, "logits.<index>" of [prompt tokens, vocab_size],
// written row by row as they are computed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/request.h"

namespace bulkhead {

class LogitsFile {
 public:
  struct Tensor {
    int64_t index = 0;
    int64_t num_tokens = 0;
  };
  // Creates or replaces the file, at its full size. INVALID_ARGUMENT with exit code 2 if it cannot.
  static absl::StatusOr<std::unique_ptr<LogitsFile>> Create(const std::string& path,
                                                            const std::vector<Tensor>& tensors,
                                                            int64_t vocab_size);
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  ~LogitsFile();

  // The sink for the rows of tensors[i]; owned by the file.
  LogitsSink* sink(size_t i) { return sinks_[i].get(); }

 private:
  explicit LogitsFile(int fd) : fd_(fd) {}

  int fd_;
  std::vector<std::unique_ptr<LogitsSink>> sinks_;
};

}  // namespace bulkhead
