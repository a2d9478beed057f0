// GLM-4.5 and GLM-4.6: experts chosen by a sigmoid and a bias, a shared one, dense first layers;
// biases of q, k and v, RoPE on half of each head; a layer for multi-token prediction.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 8, .max_position_embeddings = 131072, .norm_epsilon = 1e-5},
            config);
  ReadBiases(fields, false, config);
  config.qk_norm = fields.Bool("use_qk_norm").value_or(false);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  ReadMoe(fields, {.num_experts = {"n_routed_experts"}}, config);
  MoeConfig& moe = config.moe;
  moe.correction_bias = true;
  ReadSharedExperts(fields, 1, config);
  moe.router.scoring = RouterScoring::kSigmoid;
  moe.router.normalizes = fields.Bool("norm_topk_prob").value_or(true);
  moe.router.scale = ReadFactor(fields, "routed_scaling_factor", 1);
  ReadExpertGroups(fields, {}, 2, config);
  const int dense = fields.Int("first_k_dense_replace", 0, config.num_hidden_layers).value_or(1);
  SetExpertLayers([&](int layer) { return layer >= dense; }, config);
  ReadMtpLayers(fields, "num_nextn_predict_layers", 0, config);
}

}  // namespace

Family glm4_moe() {
  Family family =
      DecoderFamily<kSharedExpertsLayer>("Glm4MoeForCausalLM", "glm4_moe", ReadConfig,
                                         {.is_partial = true, .partial_rotary_factor = 0.5});
  family.spec.model_tensors = ModelTensorsWithMtp;
  return family;
}

}  // namespace bulkhead::families
