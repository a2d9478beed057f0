// Granite: Llama with multipliers of embeddings, scores, residuals and logits.
#include "runtime/model/families/granite.h"

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

void ReadGraniteFields(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.max_position_embeddings = 2048}, config);
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.has_window = false}, config);
  config.embedding_multiplier = ReadFactor(fields, "embedding_multiplier", 1);
  config.attention_scale = ReadFactor(fields, "attention_multiplier", 1);
  config.residual_multiplier = ReadFactor(fields, "residual_multiplier", 1);
  config.logit_multiplier = 1 / ReadFactor(fields, "logits_scaling", 1);
}

Family granite() { return DecoderFamily("GraniteForCausalLM", "granite", ReadGraniteFields); }

}  // namespace bulkhead::families
