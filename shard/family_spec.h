// FamilySpec: what a family of models is to shard/: its names, its fields of config.json and its
// tensors. runtime/model/family.h adds the forward pass.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "shard/config_fields.h"
#include "shard/model_config.h"
#include "shard/tensor_row.h"

namespace bulkhead {

// Defaults of a family's rotary embedding, and which of its settings may vary.
struct RopeDefaults {
  double theta = 10000.0;
  // Theta of layers with a window, from rope_parameters {full_attention, sliding_attention} or
  // rope_local_base_freq; 0: the family has one table for all layers.
  double window_theta = 0;
  bool window_has_theta = false;  // rope_theta is also their default
  bool is_partial = false;        // whether partial_rotary_factor may be less than 1
  double partial_rotary_factor = 1.0;
  // Layers without a window default to proportional, and may say so.
  bool is_proportional = false;
  bool scales_q = false;       // by llama_4_scaling_beta
  bool scales_scores = false;  // by the square of yarn's mscale_all_dim
  bool reads_alpha = false;    // of rope_type dynamic
};

struct FamilySpec {
  const char* architecture;  // "LlamaForCausalLM"
  const char* model_type;    // "llama"
  // Reads the fields that are specific to the family, or refuses their values. Fields that it does
  // not read are refused if they would change the arithmetic (field_policy.h).
  void (*read_config)(ConfigFields& fields, ModelConfig& config);
  void (*model_tensors)(const ModelConfig& config, TensorTable& table);
  void (*layer_tensors)(const ModelConfig& config, int layer, TensorTable& table);
  const char* prefix = "";              // of all tensor names
  const char* model_prefix = "model.";  // after it, except for the head
  // Tensors of parts that are not served: fnmatch patterns, separated by commas.
  const char* not_served = "";
  // Prefix of its MTP layer's tensors; such a layer reads its own state after the norm, as it does
  // the model's (Qwen3-Next); null: the layer is numbered after the model's layers, and reads its
  // own state before the norm (DeepSeek V3).
  const char* mtp_prefix = nullptr;
  RopeDefaults rope = {};
  // For a multimodal checkpoint whose text part is served, with its config in the field
  // text_config: the model_types allowed there (separated by commas). Empty: not multimodal.
  absl::string_view text_model_types = "";
  bool has_text_config() const { return !text_model_types.empty(); }
};
using FamilySpecs = absl::Span<const FamilySpec* const>;

}  // namespace bulkhead
