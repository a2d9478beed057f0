#include "tests/shard/checkpoint_files.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/tensor_row.h"
#include "tests/support/family_named.h"

namespace bulkhead {

using nlohmann::json;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "bulkhead-XXXXXX").string();
  BH_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

void WriteFile(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(
      path);  // some file systems flush a file that is truncated and written anew
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  BH_CHECK(file.good());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  BH_CHECK(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

std::string SafetensorsBytes(const std::vector<RawTensor>& tensors) {
  json header = json::object();
  std::string data;
  for (const RawTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.format},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return SafetensorsBytes(header.dump(), data);
}

std::vector<RawTensor> ReadRawTensors(const std::string& path) {
  const std::string bytes = ReadFile(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const json header = json::parse(bytes.substr(8, length));
  std::vector<RawTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    tensors.push_back(
        {name, entry["dtype"], entry["shape"], bytes.substr(8 + length + begin, end - begin)});
  }
  return tensors;
}

std::map<std::string, RawTensor> ReadRawCheckpoint(const std::string& dir) {
  std::map<std::string, RawTensor> tensors;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    for (RawTensor& tensor : ReadRawTensors(file.path().string())) tensors[tensor.name] = tensor;
  }
  return tensors;
}

std::vector<RawTensor> RandomTensors(const ModelConfig& config, const std::string& format,
                                     uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<RawTensor> tensors;
  for (const TensorRow& row : AllTensors(config)) {
    if (row.optional) continue;
    RawTensor tensor;
    tensor.name = row.Name();
    tensor.format = format;
    tensor.shape = row.Shape();
    tensor.bytes.resize(static_cast<size_t>(row.rows * row.cols * (format == "F32" ? 4 : 2)));
    for (char& byte : tensor.bytes)
      byte = static_cast<char>(random() & 0x7b);  // finite as any format
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

ModelConfig SmallConfig() {
  ModelConfig config;
  config.family = FamilyNamed("llama");
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.hidden_size = 12;
  config.intermediate_size = 20;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 3;
  config.head_dim = 4;
  config.vocab_size = 23;
  config.max_position_embeddings = 64;
  config.layer_uses_window.assign(2, false);
  return config;
}

TensorRow RowOf(const ModelConfig& config, const std::string& name) {
  for (TensorRow& row : AllTensors(config)) {
    if (row.Name() == name) return row;
  }
  BH_CHECK(false);
}

std::vector<std::string> FixtureDirs() {
  std::vector<std::string> dirs;
  for (const auto& entry : std::filesystem::directory_iterator(BH_TEST_DATA "/models")) {
    if (std::filesystem::exists(entry.path() / "golden.json"))
      dirs.push_back(entry.path().string());
  }
  std::sort(dirs.begin(), dirs.end());
  BH_CHECK(dirs.size() == 50);
  return dirs;
}

ModelConfig FixtureConfig(const std::string& dir) {
  auto parsed = ReadModelConfig(dir, UnknownFields::kRefuse, AllFamilySpecs());
  BH_CHECK(parsed.ok());
  return parsed->model;
}

}  // namespace bulkhead
