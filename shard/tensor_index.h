// TensorIndex: all tensors of a checkpoint by name, with the file that holds each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "shard/family_spec.h"
#include "shard/model_config.h"
#include "shard/safetensors.h"
#include "shard/tensor_row.h"

namespace bulkhead {

struct LocatedTensor {
  const TensorEntry* entry = nullptr;
  const LocalFile* file = nullptr;
};

// "layers.3.self_attn.q_proj.lora_A.weight": a PEFT tensor name without its prefixes.
absl::string_view AdapterTensorName(absl::string_view name);

class TensorIndex {
 public:
  // DIR/model.safetensors, or else the files of DIR/model.safetensors.index.json, which must agree
  // with it tensor by tensor. Tensors saved from a model without its head (embedding models) get
  // their usual names, with "model." in front.
  static absl::StatusOr<TensorIndex> Open(const std::string& dir);
  // DIR/adapter_model.safetensors (shard/adapter.h), whose tensors are found by AdapterTensorName.
  static absl::StatusOr<TensorIndex> OpenAdapter(const std::string& dir);

  // With the row's shape and a number format of weights.
  absl::StatusOr<LocatedTensor> Find(const TensorRow& row) const;
  // Any other tensor, with this shape and number format.
  absl::StatusOr<LocatedTensor> FindTensor(const std::string& name,
                                           const std::vector<int64_t>& shape,
                                           absl::string_view format) const;
  // With any shape and format; null if there is none. Valid as long as the index.
  const LocatedTensor* FindAny(absl::string_view name) const;
  absl::Status CheckAgainst(const ModelConfig& config) const;
  const FamilySpec* FamilyOfNames(const ModelConfig& config, FamilySpecs families) const;
  bool HasLmHead(const ModelConfig& config) const;
  absl::StatusOr<bool> HasOwnLmHead(const ModelConfig& config) const;
  uint64_t Fingerprint() const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }  // by name
  DType MainDType() const;

 private:
  absl::Status Add(std::unique_ptr<SafetensorsFile> file);
  std::map<int, LocatedTensor> Tables(const ModelConfig& config) const;  // present ones, by slot
  static absl::StatusOr<TensorIndex> OpenAsNamed(const std::string& dir);
  absl::Status Rename(const std::function<std::string(absl::string_view)>& new_name);

  std::string dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::map<absl::string_view, LocatedTensor> tensors_;  // keys point into files_ or names_
};

}  // namespace bulkhead
