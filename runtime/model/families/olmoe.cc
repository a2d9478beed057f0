// OLMoE: Llama with experts as MLP, one norm over all heads of q, and one of k.
#include "runtime/model/families/llama.h"

namespace bulkhead::families {

Family olmoe() {
  return DecoderFamily("OlmoeForCausalLM", "olmoe", [](ConfigFields& fields, ModelConfig& config) {
    ReadLlamaFields(fields,
                    {.sizes = {.max_position_embeddings = 4096, .norm_epsilon = 1e-5},
                     .attention_bias = AttentionBias::kRead,
                     .qk_norm = true},
                    config);
    config.qk_norm_of_all_heads = true;
    ReadMoe(fields,
            {.default_num_experts = 64,
             .num_experts_per_tok = 8,
             .intermediate_size = "intermediate_size"},
            config);
    SetExpertLayers([](int) { return true; }, config);
    config.moe.router.normalizes = fields.Bool("norm_topk_prob").value_or(false);
  });
}

}  // namespace bulkhead::families
