// Gemma: RMSNorm with 1 + w, scaled embeddings, GELU.
#include "runtime/model/families/gemma.h"

#include <cmath>

#include "memory/bf16.h"

namespace bulkhead::families {

float GemmaEmbeddingScale(const ModelConfig& config) {
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  // If the config has none, the tensors' dtype, bf16.
  const DType dtype = config.dtype.value_or(DType::kBF16);
  return dtype == DType::kBF16 ? F32OfBf16(Bf16OfF32(scale)) : scale;
}

void ReadGemmaFields(ConfigFields& fields, const SizeDefaults& sizes, ModelConfig& config) {
  ReadSizes(fields, sizes, config);
  config.norm_weight_offset = 1;
  config.embedding_multiplier = GemmaEmbeddingScale(config);
  config.tie_word_embeddings = true;
  ReadBiases(fields, true, config);
  fields.RefuseUnlessOff("use_bidirectional_attention");
  // hidden_activation is used if present; the first configs only have hidden_act "gelu" and mean
  // its tanh form.
  config.activation = Activation::kGeluTanh;
  ReadActivationField(fields, "hidden_activation", {Activation::kGeluTanh}, config);
  if (fields.IsNullOrMissing("hidden_activation") && fields.String("hidden_act") != "gelu") {
    ReadActivationField(fields, "hidden_act", {Activation::kGeluTanh}, config);
  }
  fields.Ignore("hidden_act");
}

void ReadGemma2Fields(ConfigFields& fields, const SizeDefaults& sizes, const SoftCaps& by_default,
                      ModelConfig& config) {
  ReadGemmaFields(fields, sizes, config);
  config.norms_sums = true;
  config.attention_scale = static_cast<float>(
      1 / std::sqrt(fields.Number("query_pre_attn_scalar", 1e-6, 1e6).value_or(256)));
  config.attention_soft_cap = ReadSoftCap(fields, "attn_logit_softcapping", by_default.scores);
  config.logit_soft_cap = ReadSoftCap(fields, "final_logit_softcapping", by_default.logits);
}

namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadGemmaFields(fields,
                  {.num_key_value_heads = 16, .head_dim = 256, .max_position_embeddings = 8192},
                  config);
  ReadWindow(fields, {.has_window = false}, config);
}

}  // namespace

Family gemma() { return DecoderFamily("GemmaForCausalLM", "gemma", ReadConfig); }

}  // namespace bulkhead::families
