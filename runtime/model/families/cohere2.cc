// Cohere 2 (Command R7B, A): Cohere with a window in three layers of four; the fourth has no
// positions.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.max_position_embeddings = 8192,
             .norm_epsilon_name = "layer_norm_eps",
             .norm_epsilon = 1e-5},
            config);
  config.layer_norm = true;
  config.rope_interleaved = true;
  config.tie_word_embeddings = true;
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  config.logit_multiplier = ReadFactor(fields, "logit_scale", 0.0625);
  ReadWindow(fields, {.window = 4096, .pattern = 4}, config);
  RopeInWindowLayersAlone(config);
  fields.RefuseUnlessOne("rotary_pct");
  for (const char* name : {"layer_switch", "order_of_interleaved_layers", "position_embedding_type",
                           "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                           "use_parallel_embedding"}) {
    fields.Ignore(name);
  }
}

}  // namespace

Family cohere2() {
  return {
      .spec = {.architecture = "Cohere2ForCausalLM",
               .model_type = "cohere2",
               .read_config = ReadConfig,
               .model_tensors = ModelTensors,
               .layer_tensors = [](const ModelConfig& c, int,
                                   TensorTable& t) { LayerTensors({.mlp_norm = nullptr}, c, t); }},
      .buffers = LayerBuffers,
      .forward = ParallelLayer};
}

}  // namespace bulkhead::families
