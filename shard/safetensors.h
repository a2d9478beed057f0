// SafetensorsFile: one safetensors file with its header checked: every tensor is inside the file,
// its bytes are its number format times its shape, and the tensors fill the file from the header's
// end to the last byte without gap or overlap. Reads with pread, never by mapping: a mapped file
// that shrinks is a fatal signal, and mapping is slow on network file systems.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "memory/matrix.h"

namespace bulkhead {

struct TensorEntry {
  std::string name;
  std::string format;          // as the header spells it: "BF16"
  std::optional<DType> dtype;  // if a weight may have it: F32, BF16, F16
  std::vector<int64_t> shape;  // every dimension >= 0
  int64_t begin = 0;           // in bytes from the start of the file
  int64_t bytes = 0;
};

// The tensors of a file of `file_bytes` bytes whose header is `header_json`, ordered by offset.
// `source` names the file. DATA_LOSS names file, tensor and what is wrong.
absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(absl::string_view header_json,
                                                                int64_t file_bytes,
                                                                const std::string& source);

class SafetensorsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // by offset
  const LocalFile& file() const { return file_; }

 private:
  SafetensorsFile(LocalFile file, std::vector<TensorEntry> tensors);

  LocalFile file_;
  std::vector<TensorEntry> tensors_;
};

}  // namespace bulkhead
