// Mistral: Llama with a sliding window in every layer.
#include "runtime/model/families/llama.h"

namespace bulkhead::families {

Family mistral() {
  return DecoderFamily(
      "MistralForCausalLM", "mistral", [](ConfigFields& fields, ModelConfig& config) {
        ReadLlamaFields(fields,
                        {.sizes = {.num_key_value_heads = 8, .max_position_embeddings = 131072},
                         .window = {.window = 4096}},
                        config);
      });
}

}  // namespace bulkhead::families
