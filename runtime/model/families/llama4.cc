// Llama 4, the text part: attention in chunks, every fourth layer over all positions without RoPE,
// where q is scaled by position; one expert of many, with a weighted input, and a shared one.
#include "runtime/model/families/llama4.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {
namespace {

// no_rope_layers has, against its name, a 1 for each layer with positions; else every
// no_rope_layer_interval-th layer has none. Layers with positions are those in chunks.
void ReadPositions(ConfigFields& fields, ModelConfig& config) {
  const int interval = fields.Int("no_rope_layer_interval", 1, kMaxLayers).value_or(4);
  const std::vector<int> stated = fields.IntOrList("no_rope_layers", 0, 1);
  if (!stated.empty() && static_cast<int>(stated.size()) != config.num_hidden_layers) {
    fields.Invalid("no_rope_layers", absl::StrCat("it must have num_hidden_layers entries, ",
                                                  config.num_hidden_layers));
    return;
  }
  config.layer_uses_rope.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layer_uses_rope[layer] =
        stated.empty() ? (layer + 1) % interval != 0 : stated[layer] == 1;
  }
  ReadWindow(fields, {.has_window = false, .chunk = 8192}, config);
  if (fields.IsNullOrMissing("layer_types") && config.attention_chunk > 0) {
    config.layer_uses_window = config.layer_uses_rope;
  }
  constexpr const char* kTuning = "attn_temperature_tuning";  // a number in old files
  if (fields.ValueUnlessOff(kTuning).has_value() || fields.IsNullOrMissing(kTuning)) {
    config.q_scale_beta = ReadFactor(fields, "attn_scale", 0.1);
    config.q_scale_context = fields.Int("floor_scale", 1, kMaxPositionEmbeddings).value_or(8192);
    config.q_scale_offset = 1;
    config.q_scale_without_rope = true;
  } else {
    for (const char* name : {"attn_scale", "floor_scale"}) fields.Ignore(name);
  }
}

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.num_key_value_heads = 8,
             .head_dim = 128,
             .max_position_embeddings = 131072,
             .norm_epsilon = 1e-5},
            config);
  ReadBiases(fields, true, config);
  ReadActivation(fields, {Activation::kSilu}, config);
  config.rope_interleaved = true;
  config.qk_norm_without_weight = fields.Bool("use_qk_norm").value_or(true);
  config.qk_norm_after_rope = true;
  ReadPositions(fields, config);
  ReadMoe(fields,
          {.num_experts = {"num_local_experts"},
           .default_num_experts = 16,
           .num_experts_per_tok = 1,
           .intermediate_size = "intermediate_size"},
          config);
  config.intermediate_size =
      fields.Int("intermediate_size_mlp", 1, kMaxIntermediateSize).value_or(16384);
  MoeConfig& moe = config.moe;
  moe.shared_intermediate_size = moe.intermediate_size;
  moe.weighs_inputs = true;
  moe.router.scoring = RouterScoring::kSigmoid;
  const int step = fields.Int("interleave_moe_layer_step", 1, kMaxLayers).value_or(1);
  const bool is_stated = !fields.IsNullOrMissing("moe_layers");
  const std::vector<int> stated = fields.IntOrList("moe_layers", 0, config.num_hidden_layers - 1);
  SetExpertLayers(
      [&](int layer) {
        return is_stated ? absl::c_linear_search(stated, layer) : (layer + 1) % step == 0;
      },
      config);
  fields.Ignore("for_llm_compressor");
}

constexpr LayerNames kLayer = {.gate = "feed_forward.gate_proj",
                               .up = "feed_forward.up_proj",
                               .down = "feed_forward.down_proj",
                               .moe = {.router = "feed_forward.router",
                                       .fused_gate_up = "feed_forward.experts.gate_up_proj",
                                       .fused_down = "feed_forward.experts.down_proj",
                                       .fused_is_transposed = true,
                                       .shared_gate = "feed_forward.shared_expert.gate_proj",
                                       .shared_up = "feed_forward.shared_expert.up_proj",
                                       .shared_down = "feed_forward.shared_expert.down_proj"}};

}  // namespace

Family llama4() {
  return DecoderFamily<kLayer>("Llama4ForCausalLM", "llama4_text", ReadConfig, {.theta = 500000});
}

}  // namespace bulkhead::families
