// Qwen3.5-MoE: Qwen3.5 with experts.
#include "runtime/model/families/qwen_hybrid.h"
#include "runtime/model/families/qwen_moe.h"

namespace bulkhead::families {

void ReadQwenHybridMoe(ConfigFields& fields, ModelConfig& config) {
  ReadQwenMoe(fields, config);
  config.moe.router.normalizes = fields.Bool("norm_topk_prob").value_or(true);
  config.moe.shared_intermediate_size =
      fields.RequiredInt("shared_expert_intermediate_size", 1, kMaxIntermediateSize);
  config.moe.shared_gate = true;
}

Family qwen3_5_moe() {
  return QwenHybrid("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
                    [](ConfigFields& fields, ModelConfig& config) {
                      ReadQwenHybrid(fields,
                                     {.vocab_size = 248320,
                                      .num_attention_heads = 16,
                                      .num_key_value_heads = 2,
                                      .head_dim = 256,
                                      .intermediate_size = 1,  // all layers have experts
                                      .max_position_embeddings = 32768},
                                     config);
                      ReadQwenHybridMoe(fields, config);
                    });
}

}  // namespace bulkhead::families
