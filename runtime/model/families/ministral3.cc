// Ministral 3: Mistral with yarn and q scaled by position.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 8,
             .head_dim = 128,
             .max_position_embeddings = 262144,
             .norm_epsilon = 1e-5},
            config);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {}, config);
  if (fields.IsNullOrMissing("rope_scaling") && fields.IsNullOrMissing("rope_parameters")) {
    if (!fields.Has("rope_theta")) fields.SetDefault("rope_theta", 1e6);
    fields.SetDefault("rope_parameters", nlohmann::json::parse(R"({"rope_type": "yarn",
        "factor": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
        "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384})"));
  }
}

}  // namespace

Family ministral3() {
  return DecoderFamily("Ministral3ForCausalLM", "ministral3", ReadConfig, {.scales_q = true});
}

}  // namespace bulkhead::families
