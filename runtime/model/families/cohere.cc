// Cohere (Command R): attention and MLP in parallel after one LayerNorm, interleaved RoPE, scaled
// logits.
#include "runtime/model/families/cohere.h"

namespace bulkhead::families {

void ReadCohereFields(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.max_position_embeddings = 8192,
             .norm_epsilon_name = "layer_norm_eps",
             .norm_epsilon = 1e-5},
            config);
  config.layer_norm = true;
  config.rope_interleaved = true;
  config.tie_word_embeddings = true;
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  config.logit_multiplier = ReadFactor(fields, "logit_scale", 0.0625);
}

namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadCohereFields(fields, config);
  fields.RefuseUnlessOff("use_qk_norm");
  ReadWindow(fields, {.has_window = false}, config);
}

}  // namespace

Family cohere() {
  Family family = DecoderFamily<kCohereLayer>("CohereForCausalLM", "cohere", ReadConfig);
  family.forward = ParallelLayer;
  return family;
}

}  // namespace bulkhead::families
