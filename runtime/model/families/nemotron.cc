// Nemotron: LayerNorm with 1 + w and a bias, an MLP of squared ReLU without a gate, RoPE on half of
// each head.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(
      fields,
      {.max_position_embeddings = 4096, .norm_epsilon_name = "norm_eps", .norm_epsilon = 1e-5},
      config);
  config.layer_norm = true;
  config.norm_bias = true;
  config.norm_weight_offset = 1;
  config.gated_mlp = false;
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kReluSquared}, config);
  ReadWindow(fields, {.has_window = false}, config);
}

}  // namespace

Family nemotron() {
  return DecoderFamily("NemotronForCausalLM", "nemotron", ReadConfig,
                       {.is_partial = true, .partial_rotary_factor = 0.5});
}

}  // namespace bulkhead::families
