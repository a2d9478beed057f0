// Mixtral: Llama with experts as MLP, weighted by a softmax over the chosen ones.
#include "runtime/model/decoder_layer.h"
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

}  // namespace

Family mixtral() {
  Family family = LlamaLike("MixtralForCausalLM", "mixtral", ReadConfig);
  family.spec.rope.theta = 1e6;
  family.spec.layer_tensors = [](const ModelConfig& c, int, TensorTable& t) {
    LayerTensors({.moe = {.router = "block_sparse_moe.gate",
                          .gate = "block_sparse_moe.experts.$0.w1",
                          .up = "block_sparse_moe.experts.$0.w3",
                          .down = "block_sparse_moe.experts.$0.w2"}},
                 c, t);
  };
  return family;
}

}  // namespace bulkhead::families
