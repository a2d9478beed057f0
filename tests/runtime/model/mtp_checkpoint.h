// Checkpoints of tests/data/models with an MTP layer behind their last one.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {

// What that layer is.
enum class MtpKind {
  kOwnTables,     // other random numbers, with tables of its own
  kSharedTables,  // without
  // Layers add nothing to a token's embedding, so that it alone decides what follows; the MTP layer
  // is given the embedding alone, and has the model's norm and head.
  kRight
};

class MtpCheckpoint {
 public:
  // `fixture`: deepseek_v3_bf16 or glm4_moe_bf16, of 3 layers, or one of Qwen's hybrids, of 4; D is
  // 64. Of the latter without tables of the layer's own.
  MtpCheckpoint(const std::string& fixture, MtpKind kind)
      : is_hybrid_(fixture.starts_with("qwen")) {
    const std::string from = std::string(BH_TEST_DATA) + "/models/" + fixture;
    tensors_ = ReadRawCheckpoint(from);
    if (kind == MtpKind::kRight) ClearSums();
    AddLayer(kind);
    nlohmann::json config = nlohmann::json::parse(ReadFile(from + "/config.json"));
    config[is_hybrid_ ? "mtp_num_hidden_layers" : "num_nextn_predict_layers"] = 1;
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
  // All of its numbers in the opposite order.
  static RawTensor Reversed(RawTensor tensor) {
    auto* const begin = reinterpret_cast<uint16_t*>(tensor.bytes.data());
    std::reverse(begin, begin + tensor.bytes.size() / sizeof(uint16_t));
    return tensor;
  }
  void PutReversed(const char* name, const char* of_hybrid, RawTensor tensor) {
    Put(name, of_hybrid, Reversed(std::move(tensor)));
  }
  void Put(const char* name, const char* of_hybrid, RawTensor tensor) {
    tensor.name = is_hybrid_ ? absl::StrCat("mtp.", of_hybrid, ".weight")
                             : absl::StrCat("model.layers.3.", name, ".weight");
    tensors_[tensor.name] = std::move(tensor);
  }

  void ClearSums() {
    for (auto& [name, tensor] : tensors_) {
      if (absl::StrContains(name, "o_proj") || absl::StrContains(name, "out_proj") ||
          absl::StrContains(name, "down_proj")) {
        std::fill(tensor.bytes.begin(), tensor.bytes.end(), 0);
      }
    }
  }

  void AddLayer(MtpKind kind) {
    const std::string last = is_hybrid_ ? "model.layers.3." : "model.layers.2.";
    const std::map<std::string, RawTensor> model = tensors_;
    for (const auto& [name, tensor] : model) {
      if (!name.starts_with(last)) continue;
      RawTensor reversed = Reversed(tensor);
      reversed.name =
          absl::StrCat(is_hybrid_ ? "mtp.layers.0." : "model.layers.3.", name.substr(last.size()));
      tensors_[reversed.name] = std::move(reversed);
    }
    PutReversed("enorm", "pre_fc_norm_embedding", model.at("model.norm.weight"));
    PutReversed("hnorm", "pre_fc_norm_hidden", model.at("model.layers.0.input_layernorm.weight"));
    PutReversed("shared_head.norm", "norm",
                model.at("model.layers.1.post_attention_layernorm.weight"));
    RawTensor projection = model.at("model.embed_tokens.weight");
    projection.shape = {64, 128};
    projection.bytes.resize(64 * 128 * sizeof(uint16_t));
    if (kind == MtpKind::kOwnTables) {
      PutReversed("embed_tokens", "", model.at("model.embed_tokens.weight"));
      PutReversed("shared_head.head", "", model.at("lm_head.weight"));
    }
    if (kind != MtpKind::kRight) return PutReversed("eh_proj", "fc", std::move(projection));
    const uint16_t one = 0x3F80;  // in bf16
    const uint16_t factor_one = is_hybrid_ ? 0 : one;
    std::fill(projection.bytes.begin(), projection.bytes.end(), 0);
    RawTensor norm = model.at("model.norm.weight");
    for (int64_t i = 0; i < 64; ++i) {
      std::memcpy(&projection.bytes[(i * 128 + i) * sizeof(one)], &one, sizeof(one));
      std::memcpy(&norm.bytes[i * sizeof(one)], &factor_one, sizeof(one));
    }
    Put("eh_proj", "fc", std::move(projection));
    Put("enorm", "pre_fc_norm_embedding", std::move(norm));
    Put("shared_head.norm", "norm", model.at("model.norm.weight"));
  }

  const bool is_hybrid_;
  const TemporaryFolder folder_;
  std::map<std::string, RawTensor> tensors_;
};

}  // namespace bulkhead
