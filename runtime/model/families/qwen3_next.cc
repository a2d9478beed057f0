// Qwen3-Next: as Qwen3.5-MoE, with the projections of linear attention fused.
#include "runtime/model/families/qwen_hybrid.h"

namespace bulkhead::families {

Family qwen3_next() {
  Family family = QwenHybrid(
      "Qwen3NextForCausalLM", "qwen3_next", [](ConfigFields& fields, ModelConfig& config) {
        ReadQwenHybrid(
            fields, {.num_key_value_heads = 2, .head_dim = 256, .max_position_embeddings = 32768},
            config);
        ReadQwenHybridMoe(fields, config);
      });
  family.spec.layer_tensors = [](const ModelConfig& c, int, TensorTable& t) {
    LayerTensors({.delta = {.qkvz = "linear_attn.in_proj_qkvz", .ba = "linear_attn.in_proj_ba"}}, c,
                 t);
  };
  return family;
}

}  // namespace bulkhead::families
