// Mixtral: Llama with experts as MLP, weighted by a softmax over the chosen ones.
#include "runtime/model/families/llama.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadLlamaFields(
      fields,
      {.sizes = {.num_key_value_heads = 8, .max_position_embeddings = 131072, .norm_epsilon = 1e-5},
       .window = {}},
      config);
  ReadMixtralMoe(fields, config);
}

constexpr LayerNames kLayer = {.moe = {.router = "block_sparse_moe.gate",
                                       .gate = "block_sparse_moe.experts.$0.w1",
                                       .up = "block_sparse_moe.experts.$0.w3",
                                       .down = "block_sparse_moe.experts.$0.w2"}};

}  // namespace

Family mixtral() {
  return DecoderFamily<kLayer>("MixtralForCausalLM", "mixtral", ReadConfig, {.theta = 1e6});
}

}  // namespace bulkhead::families
