// gpt-oss: attention sinks, a sliding window in every second layer, experts with biases and a
// clamped SwiGLU.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 8,
             .head_dim = 64,
             .max_position_embeddings = 131072,
             .norm_epsilon = 1e-5},
            config);
  fields.Ignore("attention_bias");  // biases exist whatever it says
  config.qkv_bias = config.o_bias = true;
  config.attention_sinks = true;
  if (!fields.Has("rope_scaling") && fields.IsNullOrMissing("rope_parameters")) {
    fields.SetDefault("rope_parameters", nlohmann::json::parse(R"({"rope_type": "yarn",
        "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
        "original_max_position_embeddings": 4096})"));
  }
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.window = 128, .pattern = 2}, config);
  ReadMoe(fields, {.num_experts = {"num_local_experts"}, .intermediate_size = "intermediate_size"},
          config);
  // Redundant with other fields.
  for (const char* name : {"experts_per_token", "initial_context_length"}) fields.Ignore(name);
  SetExpertLayers([](int) { return true; }, config);
  MoeConfig& moe = config.moe;
  moe.router.normalizes = true;
  moe.router_bias = true;
  moe.biases = true;
  moe.clamped_swiglu = true;
  moe.swiglu_alpha = ReadFactor(fields, "swiglu_alpha", 1.702);
  moe.swiglu_limit = ReadFactor(fields, "swiglu_limit", 7);
}

constexpr LayerNames kLayer = {.moe = {.router = "mlp.router",
                                       .fused_gate_up = "mlp.experts.gate_up_proj",
                                       .fused_down = "mlp.experts.down_proj",
                                       .fused_is_transposed = true,
                                       .fused_gate_up_bias = "mlp.experts.gate_up_proj_bias",
                                       .fused_down_bias = "mlp.experts.down_proj_bias"}};

}  // namespace

Family gpt_oss() {
  return DecoderFamily<kLayer>("GptOssForCausalLM", "gpt_oss", ReadConfig, {.theta = 150000});
}

}  // namespace bulkhead::families
