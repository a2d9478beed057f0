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

}  // namespace

Family hunyuan() {
  return {.spec = {.architecture = "HunYuanDenseV1ForCausalLM",
                   .model_type = "hunyuan_v1_dense",
                   .read_config = ReadConfig,
                   .model_tensors = ModelTensors,
                   .layer_tensors =
                       [](const ModelConfig& c, int, TensorTable& t) {
                         LayerTensors({.q_norm = "self_attn.query_layernorm",
                                       .k_norm = "self_attn.key_layernorm"},
                                      c, t);
                       },
                   .rope = {.reads_alpha = true}},
          .buffers = LayerBuffers,
          .forward = SequentialLayer};
}

}  // namespace bulkhead::families
