// Gemma 2: soft caps of scores and logits, a sliding window in every second layer.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {

Family gemma2() {
  return DecoderFamily<kGemma2Layer>(
      "Gemma2ForCausalLM", "gemma2", [](ConfigFields& fields, ModelConfig& config) {
        ReadGemma2Fields(
            fields, {.num_key_value_heads = 4, .head_dim = 256, .max_position_embeddings = 8192},
            {.scores = 50, .logits = 30}, config);
        fields.Ignore("sliding_window_size");
        ReadWindow(fields, {.window = 4096, .pattern = 2}, config);
      });
}

}  // namespace bulkhead::families
