// Qwen3.5: linear attention by the gated delta rule in three layers of four.
#include "runtime/model/families/qwen_hybrid.h"

namespace bulkhead::families {

void ReadQwenHybrid(ConfigFields& fields, const SizeDefaults& sizes, ModelConfig& config) {
  ReadSizes(fields, sizes, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  fields.RefuseUnlessOff("attention_bias");
  config.qk_norm = true;
  config.norm_weight_offset = 1;
  ReadGatedDelta(fields, config);
  ReadMtpLayers(fields, "mtp_num_hidden_layers", 1, config);  // default for Qwen3-Next's file
  fields.Ignore("mtp_use_dedicated_embeddings");              // they have their own tensor name
}

Family QwenHybrid(const char* architecture, const char* model_type,
                  void (*read_config)(ConfigFields& fields, ModelConfig& config)) {
  Family family = DecoderFamily(architecture, model_type, read_config,
                                {.is_partial = true, .partial_rotary_factor = 0.25});
  family.spec.model_tensors = ModelTensorsWithMtp;
  family.spec.mtp_prefix = "mtp.";
  return family;
}

Family qwen3_5() {
  return QwenHybrid("Qwen3_5ForCausalLM", "qwen3_5_text",
                    [](ConfigFields& fields, ModelConfig& config) {
                      ReadQwenHybrid(fields,
                                     {.vocab_size = 248320,
                                      .num_attention_heads = 16,
                                      .num_key_value_heads = 4,
                                      .head_dim = 256,
                                      .max_position_embeddings = 32768},
                                     config);
                    });
}

}  // namespace bulkhead::families
