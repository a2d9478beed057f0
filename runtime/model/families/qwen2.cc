// Qwen2: Llama with biases on q, k and v, and a sliding window in the upper layers if switched on.
#include "runtime/model/families/llama.h"

namespace bulkhead::families {

Family qwen2() {
  return DecoderFamily("Qwen2ForCausalLM", "qwen2", [](ConfigFields& fields, ModelConfig& config) {
    ReadLlamaFields(fields,
                    {.sizes = {.num_key_value_heads = 32, .max_position_embeddings = 32768},
                     .window = {.window = 4096, .is_switched = true},
                     .attention_bias = AttentionBias::kQkvAlways},
                    config);
  });
}

}  // namespace bulkhead::families
