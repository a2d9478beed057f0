// DeepSeek V2: latent attention (MLA), shared experts, dense first layers; experts chosen by a
// softmax, from all of them or from the groups with the best one.
#include "runtime/model/decoder_layer.h"
#include "runtime/model/families/deepseek.h"
#include "runtime/model/mla_layer.h"

namespace bulkhead::families {

void ReadDeepseekFields(ConfigFields& fields, const DeepseekDefaults& defaults,
                        ModelConfig& config) {
  ReadLatents(fields, config);
  ReadSizes(fields,
            {.head_dim = config.latent.rope_dim,
             .max_position_embeddings = defaults.max_position_embeddings},
            config);
  SetLatentHeads(fields, config);
  config.qkv_bias = fields.Bool("attention_bias").value_or(false);
  config.o_bias = config.qkv_bias;
  fields.RefuseUnlessOff("mlp_bias");
  config.rope_interleaved = fields.Bool("rope_interleave").value_or(true);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  ReadMoe(fields, {.num_experts = {"n_routed_experts"}}, config);
  ReadSharedExperts(fields, defaults.shared_experts, config);
  config.moe.router.scale =
      ReadFactor(fields, "routed_scaling_factor", defaults.routed_scaling_factor);
  const int dense = fields.Int("first_k_dense_replace", 0, config.num_hidden_layers)
                        .value_or(defaults.first_k_dense_replace);
  const int every = fields.Int("moe_layer_freq", 1, kMaxLayers).value_or(1);
  SetExpertLayers([&](int layer) { return layer >= dense && layer % every == 0; }, config);
  ReadMtpLayers(fields, "num_nextn_predict_layers", 0, config);
  // Fields for training and for another program's parallelism.
  for (const char* name : {"aux_loss_alpha", "seq_aux", "ep_size"}) fields.Ignore(name);
}

Family DeepseekLike(const char* architecture, const char* model_type,
                    void (*read_config)(ConfigFields& fields, ModelConfig& config)) {
  Family family = DecoderFamily<kSharedExpertsLayer>(architecture, model_type, read_config,
                                                     {.scales_scores = true});
  family.spec.model_tensors = ModelTensorsWithMtp;
  return family;
}

namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadDeepseekFields(fields, {}, config);
  fields.RefuseUnlessOff("norm_topk_prob");
  if (fields.String("scoring_func").value_or("softmax") != "softmax") {
    fields.Unsupported("scoring_func", "supported is softmax");
  }
  const std::string method = fields.String("topk_method").value_or("greedy");
  if (method == "group_limited_greedy") {
    ReadExpertGroups(fields, {}, 1, config);
  } else if (method == "greedy") {
    for (const char* name : {"n_group", "topk_group"}) fields.Ignore(name);
  } else {
    fields.Unsupported("topk_method", "supported are greedy and group_limited_greedy");
  }
}

}  // namespace

Family deepseek_v2() { return DeepseekLike("DeepseekV2ForCausalLM", "deepseek_v2", ReadConfig); }

}  // namespace bulkhead::families
