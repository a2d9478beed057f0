// Qwen3-MoE: Qwen3 with experts.
#include "absl/algorithm/container.h"
#include "runtime/model/families/llama.h"
#include "runtime/model/families/qwen_moe.h"

namespace bulkhead::families {

Family qwen3_moe() {
  return DecoderFamily(
      "Qwen3MoeForCausalLM", "qwen3_moe", [](ConfigFields& fields, ModelConfig& config) {
        ReadLlamaFields(fields,
                        {.sizes = {.num_key_value_heads = 4, .max_position_embeddings = 32768},
                         .window = {.window = 4096, .is_switched = true},
                         .attention_bias = AttentionBias::kRead,
                         .qk_norm = true},
                        config);
        ReadQwenMoe(fields, config);
        if (config.sliding_window == 0) return;
        // transformers reads neither max_window_layers nor layer_types here.
        if (!fields.IsNullOrMissing("layer_types") &&
            absl::c_linear_search(config.layer_uses_window, false)) {
          fields.Unsupported("layer_types",
                             "with use_sliding_window all must be sliding_attention");
        }
        config.layer_uses_window.assign(config.num_hidden_layers, true);
      });
}

}  // namespace bulkhead::families
