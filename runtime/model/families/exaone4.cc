// EXAONE 4: norms after attention and MLP instead of before, norms of the heads of q and k, RoPE
// only in layers with a sliding window.
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 32, .max_position_embeddings = 2048, .norm_epsilon = 1e-5},
            config);
  config.qk_norm = true;
  config.norms_sums = true;
  ReadActivation(fields, {Activation::kSilu}, config);
  ReadWindow(fields, {.window = 4096, .pattern = 4}, config);
  RopeInWindowLayersAlone(config);
}

}  // namespace

Family exaone4() {
  return DecoderFamily<kNormedSumsLayer>("Exaone4ForCausalLM", "exaone4", ReadConfig);
}

}  // namespace bulkhead::families
