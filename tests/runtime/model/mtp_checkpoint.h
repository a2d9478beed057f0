// Checkpoints of tests/data/models with an MTP layer behind their last one.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {

// What its layer 3 is.
enum class MtpKind {
  kOwnTables,     // other random numbers, with tables of its own
  kSharedTables,  // without
  // Layers add nothing to a token's embedding, so that it alone decides what follows; the MTP layer
  // is given the embedding alone, and has the model's norm and head.
  kRight
};

class MtpCheckpoint {
 public:
  // `fixture`: deepseek_v3_bf16 or glm4_moe_bf16, which have 3 layers and D = 64.
  MtpCheckpoint(const std::string& fixture, MtpKind kind) {
    const std::string from = std::string(BH_TEST_DATA) + "/models/" + fixture;
    tensors_ = ReadRawCheckpoint(from);
    if (kind == MtpKind::kRight) ClearSums();
    AddLayer(kind);
    nlohmann::json config = nlohmann::json::parse(ReadFile(from + "/config.json"));
    config["num_nextn_predict_layers"] = 1;
    WriteFile(folder_.File("config.json"), config.dump());
    for (const std::string name : {"golden.json", "golden.safetensors"}) {  // its prompts
      WriteFile(folder_.File(name), ReadFile(from + "/" + name));
    }
    std::vector<RawTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(tensor);
    WriteFile(folder_.File("model.safetensors"), SafetensorsBytes(list));
  }

  const std::string& dir() const { return folder_.path(); }

 private:
  static constexpr char kLayer[] = "model.layers.3.";

  // Another tensor's numbers, all of them in the opposite order.
  void PutReversed(const std::string& name, RawTensor tensor) {
    auto* const begin = reinterpret_cast<uint16_t*>(tensor.bytes.data());
    std::reverse(begin, begin + tensor.bytes.size() / sizeof(uint16_t));
    Put(name, std::move(tensor));
  }
  void Put(const std::string& name, RawTensor tensor) {
    tensor.name = kLayer + name;
    tensors_[tensor.name] = std::move(tensor);
  }

  void ClearSums() {
    for (auto& [name, tensor] : tensors_) {
      if (absl::StrContains(name, "o_proj") || absl::StrContains(name, "down_proj")) {
        std::fill(tensor.bytes.begin(), tensor.bytes.end(), 0);
      }
    }
  }

  void AddLayer(MtpKind kind) {
    const std::string last = "model.layers.2.";
    const std::map<std::string, RawTensor> model = tensors_;
    for (const auto& [name, tensor] : model) {
      if (name.starts_with(last)) PutReversed(name.substr(last.size()), tensor);
    }
    PutReversed("enorm.weight", model.at("model.norm.weight"));
    PutReversed("hnorm.weight", model.at("model.layers.0.input_layernorm.weight"));
    PutReversed("shared_head.norm.weight",
                model.at("model.layers.1.post_attention_layernorm.weight"));
    RawTensor projection = model.at("model.embed_tokens.weight");
    projection.shape = {64, 128};
    projection.bytes.resize(64 * 128 * sizeof(uint16_t));
    if (kind == MtpKind::kOwnTables) {
      PutReversed("embed_tokens.weight", model.at("model.embed_tokens.weight"));
      PutReversed("shared_head.head.weight", model.at("lm_head.weight"));
    }
    if (kind != MtpKind::kRight) return PutReversed("eh_proj.weight", std::move(projection));
    const uint16_t one = 0x3F80;  // in bf16
    std::fill(projection.bytes.begin(), projection.bytes.end(), 0);
    RawTensor norm = model.at("model.norm.weight");
    for (int64_t i = 0; i < 64; ++i) {
      std::memcpy(&projection.bytes[(i * 128 + i) * sizeof(one)], &one, sizeof(one));
      std::memcpy(&norm.bytes[i * sizeof(one)], &one, sizeof(one));
    }
    Put("eh_proj.weight", std::move(projection));
    Put("enorm.weight", std::move(norm));
    Put("shared_head.norm.weight", model.at("model.norm.weight"));
  }

  const TemporaryFolder folder_;
  std::map<std::string, RawTensor> tensors_;
};

}  // namespace bulkhead
