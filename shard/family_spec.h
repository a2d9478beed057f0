// FamilySpec: what a family of models is to shard/: its names, its fields of config.json and its
// tensors. runtime/model/family.h adds the forward pass.
#pragma once

#include "absl/types/span.h"
#include "shard/config_fields.h"
#include "shard/model_config.h"
#include "shard/tensor_row.h"

namespace bulkhead {

struct FamilySpec {
  const char* architecture;  // "LlamaForCausalLM"
  const char* model_type;    // "llama"
  // Reads the fields that are the family's business, or refuses their values. Fields that it does
  // not ask for are refused where they would change the arithmetic (field_policy.h).
  void (*read_config)(ConfigFields& fields, ModelConfig& config);
  void (*model_tensors)(const ModelConfig& config, TensorTable& table);
  void (*layer_tensors)(const ModelConfig& config, int layer, TensorTable& table);
  const char* layer_prefix = "model.layers.";
};
using FamilySpecs = absl::Span<const FamilySpec* const>;

}  // namespace bulkhead
