// Gemma 3: norms of the heads of q and k, a sliding window in five layers of six, which have their
// own rotary table.
#include "runtime/model/families/gemma.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  // The published multimodal configs omit defaults.
  ReadGemma2Fields(fields,
                   {.vocab_size = 262208,
                    .num_attention_heads = 8,
                    .num_key_value_heads = 4,
                    .head_dim = 256,
                    .max_position_embeddings = 131072},
                   {}, config);
  config.qk_norm = true;
  ReadWindow(fields, {.window = 4096, .pattern = 6}, config);
}

}  // namespace

Family gemma3() {
  return DecoderFamily<kGemma2Layer>("Gemma3ForCausalLM", "gemma3_text", ReadConfig,
                                     {.theta = 1e6, .window_theta = 1e4});
}

}  // namespace bulkhead::families
