// Checkpoints of the tests' own making, and those of tests/data/models.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shard/model_config.h"
#include "shard/tensor_row.h"

namespace bulkhead {

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct RawTensor {
  std::string name;
  std::string format;  // "BF16"
  std::vector<int64_t> shape;
  std::string bytes;
};

void WriteFile(const std::string& path, const std::string& bytes);
std::string ReadFile(const std::string& path);

// A file with this header and these data, whatever they say.
std::string SafetensorsBytes(const std::string& header, const std::string& data);
// The file that holds `tensors`, in order.
std::string SafetensorsBytes(const std::vector<RawTensor>& tensors);
// The tensors of a well-formed file, read by other code than the one under test.
std::vector<RawTensor> ReadRawTensors(const std::string& path);
// Those of all safetensors files of a checkpoint, by name.
std::map<std::string, RawTensor> ReadRawCheckpoint(const std::string& dir);

// Random bytes for every weight that `config` demands, by name; reproducible from `seed`.
std::vector<RawTensor> RandomTensors(const ModelConfig& config, const std::string& format,
                                     uint32_t seed);

// A small valid config of the Llama family.
ModelConfig SmallConfig();

// The row of this name among all of `config`; dies where there is none.
TensorRow RowOf(const ModelConfig& config, const std::string& name);

// The folders of tests/data/models that hold weights.
std::vector<std::string> FixtureDirs();
ModelConfig FixtureConfig(const std::string& dir);

}  // namespace bulkhead
