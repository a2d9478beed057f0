// Shared by families that are Llama except for some switches and defaults.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

// attention_bias: biases of q, k, v and o, or always of q, k and v. A bias that a family does not
// read is refused if switched on.
enum class AttentionBias { kNone, kRead, kQkvAlways };

struct LlamaFields {
  SizeDefaults sizes = {};
  WindowDefaults window = {.has_window = false};
  AttentionBias attention_bias = AttentionBias::kNone;
  bool reads_mlp_bias = false;
  bool qk_norm = false;
};
void ReadLlamaFields(ConfigFields& fields, const LlamaFields& family, ModelConfig& config);

}  // namespace bulkhead::families
