// StarCoder2: LayerNorm with a bias, an MLP without a gate, biases, a sliding window.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 2,
             .max_position_embeddings = 4096,
             .norm_epsilon_name = "norm_epsilon",
             .norm_epsilon = 1e-5},
            config);
  config.layer_norm = true;
  config.norm_bias = true;
  config.gated_mlp = false;
  config.tie_word_embeddings = true;
  config.qkv_bias = config.o_bias = config.mlp_bias = fields.Bool("use_bias").value_or(true);
  ReadActivation(fields, {Activation::kGeluTanh}, config);
  ReadWindow(fields, {}, config);
  for (const char* name : {"embedding_dropout", "residual_dropout", "mlp_type", "norm_type"}) {
    fields.Ignore(name);
  }
}

constexpr LayerNames kLayer = {.up = "mlp.c_fc", .down = "mlp.c_proj"};

}  // namespace

Family starcoder2() {
  return DecoderFamily<kLayer>("Starcoder2ForCausalLM", "starcoder2", ReadConfig);
}

}  // namespace bulkhead::families
