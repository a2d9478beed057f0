// Fields of config.json that decoders of many families share: a family's read_config puts them
// together. Sizes come with limits that keep every product of two of them from overflowing.
#pragma once

#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

inline constexpr int kMaxVocabSize = 1 << 22;

// What the fields mean where the file is silent.
struct SizeDefaults {
  int num_key_value_heads = 0;  // 0: as many as heads
  int head_dim = 0;             // 0: hidden_size / num_attention_heads
  int max_position_embeddings = 2048;
};
// hidden_size, intermediate_size, the numbers of layers and heads, head_dim, vocab_size,
// max_position_embeddings, rms_norm_eps.
void ReadSizes(ConfigFields& fields, const SizeDefaults& defaults, ModelConfig& config);

// Which layers attend to a window alone: layer_types says it layer by layer, else all do.
struct WindowDefaults {
  int window = 0;            // where the file is silent; 0: the family has none, and refuses one
  bool is_switched = false;  // on by use_sliding_window alone, from layer max_window_layers on
};
void ReadWindow(ConfigFields& fields, const WindowDefaults& defaults, ModelConfig& config);

// hidden_act and hidden_activation.
void RequireSilu(ConfigFields& fields);

}  // namespace bulkhead
