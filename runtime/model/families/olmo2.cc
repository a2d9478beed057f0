// OLMo 2: norms after attention and MLP instead of before, one norm over all heads of q, and one
// of k.
#include "runtime/model/families/olmo2.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadOlmo2Fields(fields, config);
  ReadWindow(fields, {.has_window = false}, config);
}

}  // namespace

void ReadOlmo2Fields(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields, {.norm_epsilon = 1e-5}, config);
  config.qk_norm = true;
  config.qk_norm_of_all_heads = true;
  config.norms_sums = true;
  config.qkv_bias = config.o_bias = fields.Bool("attention_bias").value_or(false);
  ReadActivation(fields, {Activation::kSilu}, config);
}

Family olmo2() { return DecoderFamily<kNormedSumsLayer>("Olmo2ForCausalLM", "olmo2", ReadConfig); }

}  // namespace bulkhead::families
