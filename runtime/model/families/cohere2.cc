// Cohere 2 (Command R7B, A): Cohere with a sliding window in three layers of four; the fourth has
// no RoPE.
#include "runtime/model/families/cohere.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadCohereFields(fields, config);
  ReadWindow(fields, {.window = 4096, .pattern = 4}, config);
  RopeInWindowLayersAlone(config);
  fields.RefuseUnlessOne("rotary_pct");
  for (const char* name : {"layer_switch", "order_of_interleaved_layers", "position_embedding_type",
                           "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                           "use_parallel_embedding"}) {
    fields.Ignore(name);
  }
}

}  // namespace

Family cohere2() {
  Family family = DecoderFamily<kCohereLayer>("Cohere2ForCausalLM", "cohere2", ReadConfig);
  family.forward = ParallelLayer;
  return family;
}

}  // namespace bulkhead::families
