// SmolLM3: Llama with some layers without RoPE, which have the sliding window if it is on.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.num_key_value_heads = 4, .max_position_embeddings = 32768}, config);
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  config.tie_word_embeddings = true;
  ReadWindow(fields, {.is_switched = true}, config);
  // 1 if a layer has RoPE; if absent every fourth layer has none.
  const int interval = fields.Int("no_rope_layer_interval", 1, 1 << 20).value_or(4);
  const std::vector<int> uses_rope = fields.IntOrList("no_rope_layers", 0, 1);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool listed = layer < static_cast<int>(uses_rope.size());
    config.layer_uses_rope.push_back(listed ? uses_rope[layer] == 1 : (layer + 1) % interval != 0);
  }
  if (!uses_rope.empty() && static_cast<int>(uses_rope.size()) != config.num_hidden_layers) {
    fields.Invalid("no_rope_layers", "it must have num_hidden_layers entries");
  }
  if (!fields.IsNullOrMissing("layer_types")) return;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layer_uses_window[layer] = config.sliding_window > 0 && !config.layer_uses_rope[layer];
  }
}

}  // namespace

Family smollm3() {
  return DecoderFamily("SmolLM3ForCausalLM", "smollm3", ReadConfig, {.theta = 2e6});
}

}  // namespace bulkhead::families
