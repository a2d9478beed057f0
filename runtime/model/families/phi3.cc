// Phi-3 and Phi-4: Llama with q, k and v in one tensor, gate and up in another, and LongRoPE.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.max_position_embeddings = 4096, .norm_epsilon = 1e-5}, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {}, config);
  for (const char* name : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    fields.RefuseUnlessOff(name);
  }
  for (const char* name : {"full_attn_mod", "interpolate_factor"}) fields.RefuseUnlessOne(name);
  for (const char* name : {"embd_pdrop", "resid_pdrop", "original_max_position_embeddings"}) {
    fields.Ignore(name);
  }
}

constexpr LayerNames kLayer = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"};

}  // namespace

Family phi3() {
  return DecoderFamily<kLayer>("Phi3ForCausalLM", "phi3", ReadConfig, {.is_partial = true});
}

}  // namespace bulkhead::families
