// Seed-OSS: Llama with biases of q, k and v, and another switch for that of o.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.num_key_value_heads = 8, .head_dim = 128, .max_position_embeddings = 524288},
            config);
  if (!fields.Has("attention_bias")) fields.SetDefault("attention_bias", true);
  ReadBiases(fields, false, config);
  config.o_bias = fields.Bool("attention_out_bias").value_or(false);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  fields.Ignore("residual_dropout");
}

}  // namespace

Family seed_oss() { return DecoderFamily("SeedOssForCausalLM", "seed_oss", ReadConfig); }

}  // namespace bulkhead::families
