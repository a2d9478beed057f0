// Qwen2-MoE: Qwen2 with experts and a shared expert with a gate.
#include "absl/algorithm/container.h"
#include "runtime/model/families/llama.h"
#include "runtime/model/families/qwen_moe.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  const bool qkv_bias = fields.Bool("qkv_bias").value_or(true);
  ReadLlamaFields(fields,
                  {.sizes = {.num_key_value_heads = 16, .max_position_embeddings = 32768},
                   .window = {.window = 4096, .is_switched = true},
                   .attention_bias = AttentionBias::kQkvAlways},
                  config);
  config.qkv_bias = qkv_bias;
  if (config.sliding_window > 0 && fields.IsNullOrMissing("layer_types")) {
    // Unlike Qwen2: transformers gives every second one of the lower layers the window.
    const int end = fields.Int("max_window_layers", 0, 1 << 20).value_or(28);
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
      config.layer_uses_window[layer] = layer % 2 == 0 && layer < end;
    }
  }
  ReadQwenMoe(fields, config);
  config.moe.shared_intermediate_size =
      fields.RequiredInt("shared_expert_intermediate_size", 1, kMaxIntermediateSize);
  config.moe.shared_gate = true;
}

}  // namespace

void ReadQwenMoe(ConfigFields& fields, ModelConfig& config) {
  ReadMoe(fields, {}, config);
  config.moe.router.normalizes = fields.Bool("norm_topk_prob").value_or(false);
  const int step = fields.Int("decoder_sparse_step", 1, kMaxLayers).value_or(1);
  const std::vector<int> dense =
      fields.IntOrList("mlp_only_layers", 0, config.num_hidden_layers - 1);
  SetExpertLayers(
      [&](int layer) { return (layer + 1) % step == 0 && !absl::c_linear_search(dense, layer); },
      config);
}

Family qwen2_moe() { return DecoderFamily("Qwen2MoeForCausalLM", "qwen2_moe", ReadConfig); }

}  // namespace bulkhead::families
