// Llama: RMSNorm, grouped-query attention with rotary embeddings, SwiGLU; biases and norms of the
// heads where the config says so.
#include "runtime/model/families/llama.h"

#include "absl/strings/str_cat.h"

namespace bulkhead::families {
namespace {

bool ReadBias(ConfigFields& fields, const char* name, bool family_reads_it) {
  if (family_reads_it) return fields.Bool(name).value_or(false);
  fields.RefuseUnlessOff(name);
  return false;
}

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadLlamaFields(fields, {.attention_bias = AttentionBias::kRead, .reads_mlp_bias = true}, config);
}

}  // namespace

void ReadLlamaFields(ConfigFields& fields, const LlamaFields& family, ModelConfig& config) {
  ReadSizes(fields, family.sizes, config);
  if (family.attention_bias == AttentionBias::kQkvAlways) {
    fields.Ignore("attention_bias");
    config.qkv_bias = true;
  } else {
    config.qkv_bias =
        ReadBias(fields, "attention_bias", family.attention_bias == AttentionBias::kRead);
    config.o_bias = config.qkv_bias;
  }
  config.mlp_bias = ReadBias(fields, "mlp_bias", family.reads_mlp_bias);
  config.qk_norm = family.qk_norm;
  ReadActivation(fields, {Activation::kSilu}, config);
  const std::optional<double> query_scale = fields.Number("query_pre_attn_scalar", 0, 1e9);
  if (query_scale.has_value() && *query_scale != config.head_dim) {
    fields.Unsupported("query_pre_attn_scalar",
                       absl::StrCat("it must be absent or head_dim, ", config.head_dim));
  }
  ReadWindow(fields, family.window, config);
}

Family llama() { return DecoderFamily("LlamaForCausalLM", "llama", ReadConfig); }

}  // namespace bulkhead::families
