// Hunyuan (dense): Llama with norms of the heads of q and k after RoPE.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.max_position_embeddings = 2048, .norm_epsilon = 1e-5}, config);
  config.qk_norm = true;
  config.qk_norm_after_rope = true;
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  for (const char* name : {"eod_token_id", "use_qk_norm"}) fields.Ignore(name);
}

constexpr LayerNames kLayer = {.q_norm = "self_attn.query_layernorm",
                               .k_norm = "self_attn.key_layernorm"};

}  // namespace

Family hunyuan() {
  return DecoderFamily<kLayer>("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", ReadConfig,
                               {.reads_alpha = true});
}

}  // namespace bulkhead::families
