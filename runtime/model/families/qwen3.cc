// Qwen3: Llama with a norm on every head of q and k.
#include "runtime/model/families/llama.h"

namespace bulkhead::families {

Family qwen3() {
  return DecoderFamily("Qwen3ForCausalLM", "qwen3", [](ConfigFields& fields, ModelConfig& config) {
    ReadLlamaFields(
        fields,
        {.sizes = {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768},
         .window = {.window = 4096, .is_switched = true},
         .attention_bias = AttentionBias::kRead,
         .qk_norm = true},
        config);
  });
}

}  // namespace bulkhead::families
