// MiniMax M2: experts chosen by a sigmoid and a bias, one norm over all heads of q, and one of k,
// RoPE on a part of each head.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.num_key_value_heads = 8, .head_dim = 128, .max_position_embeddings = 196608},
            config);
  config.qk_norm = fields.Bool("use_qk_norm").value_or(true);
  config.qk_norm_of_all_heads = true;
  const std::optional<int> rotary_dim = fields.Int("rotary_dim", 2, config.head_dim);
  if (rotary_dim.has_value() && fields.IsNullOrMissing("partial_rotary_factor")) {
    fields.SetDefault("partial_rotary_factor",
                      static_cast<double>(*rotary_dim) / std::max(1, config.head_dim));
  }
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  ReadMoe(fields, {.num_experts = {"num_local_experts"}, .intermediate_size = "intermediate_size"},
          config);
  SetExpertLayers([](int) { return true; }, config);
  config.moe.correction_bias = true;
  config.moe.router.scoring = RouterScoring::kSigmoid;
  config.moe.router.normalizes = true;
  const std::optional<std::string> scoring = fields.String("scoring_func");
  if (scoring.has_value() && *scoring != "sigmoid") {
    fields.Unsupported("scoring_func", "supported is sigmoid");
  }
  if (!fields.Bool("use_routing_bias").value_or(true)) {
    fields.Unsupported("use_routing_bias", "supported is true");
  }
  if (fields.Int("shared_intermediate_size", 0, kMaxIntermediateSize).value_or(0) != 0) {
    fields.Unsupported("shared_intermediate_size", "supported is 0");
  }
  fields.IntOrList("attn_type_list", 1, 1);  // 1: softmax attention, all that M2 has
  const std::optional<std::string> norm_type = fields.String("qk_norm_type");
  if (norm_type.has_value() && *norm_type != "per_layer") {
    fields.Unsupported("qk_norm_type", "supported is per_layer");
  }
  // Modules that draft tokens are not served; the other fields belong to MiniMax's other models.
  for (const char* name : {"use_mtp", "num_mtp_modules", "mtp_transformer_layers",
                           "mlp_intermediate_size", "shared_moe_mode"}) {
    fields.Ignore(name);
  }
  for (const char* name :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    fields.RefuseUnlessOne(name);
  }
}

constexpr LayerNames kLayer = {
    .moe = {.router = "block_sparse_moe.gate",
            .correction_bias = "block_sparse_moe.e_score_correction_bias",
            .gate = "block_sparse_moe.experts.$0.w1",
            .up = "block_sparse_moe.experts.$0.w3",
            .down = "block_sparse_moe.experts.$0.w2"}};

}  // namespace

Family minimax_m2() {
  return DecoderFamily<kLayer>("MiniMaxM2ForCausalLM", "minimax_m2", ReadConfig,
                               {.theta = 5e6, .is_partial = true});
}

}  // namespace bulkhead::families
