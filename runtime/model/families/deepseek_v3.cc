// DeepSeek V3 and R1: V2 with experts chosen by a sigmoid and a bias, from the groups with the best
// two; a layer for multi-token prediction.
#include "runtime/model/families/deepseek.h"

namespace bulkhead::families {

void ReadDeepseekV3Fields(ConfigFields& fields, ModelConfig& config) {
  ReadDeepseekFields(fields,
                     {.max_position_embeddings = 4096,
                      .shared_experts = 1,
                      .routed_scaling_factor = 2.5,
                      .first_k_dense_replace = 3},
                     config);
  RouterOptions& router = config.moe.router;
  config.moe.correction_bias = true;
  router.scoring = RouterScoring::kSigmoid;
  router.normalizes = fields.Bool("norm_topk_prob").value_or(true);
  ReadExpertGroups(fields, {.count = 8, .chosen = 4}, 2, config);
  if (fields.String("scoring_func").value_or("sigmoid") != "sigmoid") {
    fields.Unsupported("scoring_func", "supported is sigmoid");
  }
  if (fields.String("topk_method").value_or("noaux_tc") != "noaux_tc") {
    fields.Unsupported("topk_method", "supported is noaux_tc");
  }
}

Family deepseek_v3() {
  return DeepseekLike("DeepseekV3ForCausalLM", "deepseek_v3", ReadDeepseekV3Fields);
}

}  // namespace bulkhead::families
