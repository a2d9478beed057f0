// Qwen3-MoE: Qwen3 with experts.
#include "runtime/model/families/llama.h"
#include "runtime/model/families/qwen_moe.h"

namespace bulkhead::families {

Family qwen3_moe() {
  return LlamaLike(
      "Qwen3MoeForCausalLM", "qwen3_moe", [](ConfigFields& fields, ModelConfig& config) {
        ReadLlamaFields(fields,
                        {.sizes = {.num_key_value_heads = 4, .max_position_embeddings = 32768},
                         .window = {.window = 4096, .is_switched = true},
                         .attention_bias = AttentionBias::kRead,
                         .qk_norm = true},
                        config);
        ReadQwenMoe(fields, config);
      });
}

}  // namespace bulkhead::families
