// GLM-4: interleaved RoPE on half of each head, norms after attention and MLP as well as before.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 2,
             .head_dim = 128,
             .max_position_embeddings = 131072,
             .norm_epsilon = 1.5625e-7},
            config);
  config.rope_interleaved = true;
  config.norms_sums = true;
  if (!fields.Has("attention_bias")) fields.SetDefault("attention_bias", true);
  ReadBiases(fields, false, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
}

constexpr LayerNames kLayer = {.attention_norm = "post_self_attn_layernorm",
                               .gate_up = "mlp.gate_up_proj",
                               .mlp_out_norm = "post_mlp_layernorm"};

}  // namespace

Family glm4() {
  return DecoderFamily<kLayer>("Glm4ForCausalLM", "glm4", ReadConfig,
                               {.is_partial = true, .partial_rotary_factor = 0.5});
}

}  // namespace bulkhead::families
