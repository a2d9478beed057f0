// Gemma 4: wider heads in layers without a window, keys and values shared by the last layers,
// normed values, per-layer inputs, experts beside the MLP.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/model/families/gemma.h"
#include "runtime/model/per_layer_inputs.h"

namespace bulkhead::families {
namespace {

// Heads of all layers [L] from per_layer_config's fields head_dim and num_key_value_heads.
struct LayerHeads {
  std::vector<int> head_dim;
  std::vector<int> num_key_value_heads;
};
LayerHeads ReadPerLayerConfig(ConfigFields& fields, const ModelConfig& config) {
  constexpr const char* kName = "per_layer_config";
  const int num_layers = config.num_hidden_layers;
  LayerHeads heads;
  heads.head_dim.assign(num_layers, config.head_dim);
  heads.num_key_value_heads.assign(num_layers, config.num_key_value_heads);
  const nlohmann::json* layers = fields.Object(kName);
  if (layers == nullptr) return heads;
  for (const auto& [key, value] : layers->items()) {
    int layer = 0;
    if (!absl::SimpleAtoi(key, &layer) || layer < 0 || layer >= num_layers || !value.is_object()) {
      fields.Invalid(kName, absl::StrCat("it must have objects by the number of a layer, 0 to ",
                                         num_layers - 1));
      return heads;
    }
    ConfigFields own(value, fields.source(), absl::StrCat(kName, ".", layer, "."));
    heads.head_dim[layer] = own.Int("head_dim", 2, kMaxHeadDim).value_or(config.head_dim);
    heads.num_key_value_heads[layer] =
        own.Int("num_key_value_heads", 1, kMaxHeads).value_or(config.num_key_value_heads);
    for (const std::string& name : own.UnknownNames()) {
      own.Unsupported(name.substr(name.rfind('.') + 1),
                      "supported are head_dim and num_key_value_heads");
    }
    if (!own.status().ok()) fields.Fail(own.status());
  }
  return heads;
}

// The older spelling, if per_layer_config is absent.
void ReadFullHeads(ConfigFields& fields, ModelConfig& config) {
  FullHeadsConfig& full = config.full_heads;
  full.values_are_keys = fields.Bool("attention_k_eq_v").value_or(false);
  if (!fields.Has("per_layer_config")) {
    full.head_dim =
        fields.Has("global_head_dim") ? fields.RequiredInt("global_head_dim", 2, kMaxHeadDim) : 512;
    const std::optional<int> kv_heads = fields.Int("num_global_key_value_heads", 1, kMaxHeads);
    full.num_key_value_heads =
        kv_heads.has_value() && full.values_are_keys ? *kv_heads : config.num_key_value_heads;
  } else {
    fields.Ignore("global_head_dim");
    fields.Ignore("num_global_key_value_heads");
    const LayerHeads heads = ReadPerLayerConfig(fields, config);
    full.head_dim = heads.head_dim.back();
    full.num_key_value_heads = heads.num_key_value_heads.back();
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
      if (heads.head_dim[layer] != config.HeadDimOf(layer) ||
          heads.num_key_value_heads[layer] != config.KvHeadsOf(layer)) {
        fields.Unsupported(
            "per_layer_config",
            absl::StrCat("layer ", layer, " must have the heads of ",
                         config.HasFullHeads(layer) ? "the other layers with full_attention"
                                                    : "the config, as all with sliding_attention"));
      }
    }
  }
  const char* dim_name = fields.Has("per_layer_config") ? "per_layer_config" : "global_head_dim";
  if (full.head_dim % 2 != 0) {
    fields.Invalid(dim_name, absl::StrCat("head_dim ", full.head_dim, " must be even"));
  }
  if (config.num_attention_heads % full.num_key_value_heads != 0) {
    fields.Invalid("num_attention_heads",
                   absl::StrCat("it must be a multiple of the KV heads of layers with "
                                "full_attention, ",
                                full.num_key_value_heads));
  }
}

// The last layers read keys and values of the last one of their kind before them.
void ReadSharedLayers(ConfigFields& fields, ModelConfig& config) {
  config.double_wide_mlp = fields.Bool("use_double_wide_mlp").value_or(false);
  const int num_layers = config.num_hidden_layers;
  const int num_shared = fields.Int("num_kv_shared_layers", 0, num_layers - 1).value_or(0);
  if (num_shared == 0) return;
  config.kv_layer.resize(num_layers);
  for (int layer = 0; layer < num_layers; ++layer) {
    int owner = std::min(layer, num_layers - num_shared - 1);
    while (owner >= 0 && config.layer_uses_window[owner] != config.layer_uses_window[layer]) {
      --owner;
    }
    if (layer < num_layers - num_shared) owner = layer;
    if (owner < 0) {
      fields.Invalid("num_kv_shared_layers",
                     absl::StrCat("layer ", layer, " has no layer of its kind before the last ",
                                  num_shared, ", whose keys and values it could read"));
      return;
    }
    config.kv_layer[layer] = owner;
  }
}

void ReadPerLayerInputs(ConfigFields& fields, ModelConfig& config) {
  constexpr const char* kName = "hidden_size_per_layer_input";
  const int by_default = fields.Has(kName) ? 0 : 256;
  const int size = fields.Int(kName, 0, kMaxIntermediateSize).value_or(by_default);
  if (int64_t{size} * config.num_hidden_layers > kMaxIntermediateSize) {
    fields.Invalid(kName, absl::StrCat("over all ", config.num_hidden_layers,
                                       " layers there may be ", kMaxIntermediateSize, " columns"));
  }
  config.per_layer_input_size = size;
  const int vocab = fields.Int("vocab_size_per_layer_input", 1, kMaxVocabSize).value_or(262144);
  if (size > 0 && vocab != config.vocab_size) {
    fields.Unsupported("vocab_size_per_layer_input",
                       absl::StrCat("it must be vocab_size, ", config.vocab_size));
  }
}

// Experts beside the MLP of every layer.
void ReadExperts(ConfigFields& fields, ModelConfig& config) {
  if (!fields.Bool("enable_moe_block").value_or(false)) {
    for (const char* name : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
      fields.Ignore(name);
    }
    return;
  }
  ReadMoe(fields, {.num_experts = {"num_experts"}, .per_token_name = "top_k_experts"}, config);
  MoeConfig& moe = config.moe;
  moe.layer_uses_experts.assign(config.num_hidden_layers, true);
  moe.beside_mlp = true;
  moe.expert_scales = true;
  moe.router.normalizes = true;
  moe.router_multiplier =
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.hidden_size)));
}

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadSizes(fields,
            {.vocab_size = 262144,
             .num_attention_heads = 8,
             .num_key_value_heads = 4,
             .head_dim = 256,
             .max_position_embeddings = 131072},
            config);
  config.attention_scale = 1;
  config.embedding_multiplier = GemmaEmbeddingScale(config);
  config.tie_word_embeddings = true;
  config.qk_norm = true;
  config.normed_values = true;
  config.norms_sums = true;
  config.qkv_bias = config.o_bias = fields.Bool("attention_bias").value_or(false);
  ReadActivation(fields, {Activation::kGeluTanh}, config);
  config.logit_soft_cap = ReadSoftCap(fields, "final_logit_softcapping");
  // "vision": tokens of an image attend to each other; text tokens do not.
  if (fields.String("use_bidirectional_attention").value_or("vision") != "vision") {
    fields.Unsupported("use_bidirectional_attention", "it must be absent, null or \"vision\"");
  }
  ReadExperts(fields, config);
  ReadWindow(fields, {.window = 512, .pattern = 6}, config);
  if (!fields.status().ok()) return;  // the rest iterates over layers
  if (!fields.Has("layer_types")) config.layer_uses_window.back() = false;
  if (config.layer_uses_window.back()) {
    fields.Unsupported("layer_types", "the last one must be full_attention");
  }
  ReadFullHeads(fields, config);
  ReadSharedLayers(fields, config);
  ReadPerLayerInputs(fields, config);
}

void Tensors(const ModelConfig& c, TensorTable& t) {
  ModelTensors(c, t);
  PerLayerModelTensors(c, t);
  // Present in published checkpoints but never used.
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.OwnsKv(layer)) continue;
    for (const char* name : {"k_proj", "v_proj", "k_norm"}) {
      t.Optional(absl::StrCat(c.family->model_prefix, "layers.", layer, ".self_attn.", name, ".*"));
    }
    t.Optional(absl::StrCat(c.family->model_prefix, "layers.", layer, ".self_attn.[kv]_scale"));
  }
}

void TensorsOfLayer(const ModelConfig& c, int, TensorTable& t) {
  LayerNames names = kGemma2Layer;
  names.moe = {.router = "router.proj",
               .expert_scales = "router.per_expert_scale",
               .fused_gate_up = "experts.gate_up_proj",
               .fused_down = "experts.down_proj"};
  names.mlp_sum_norm = "post_feedforward_layernorm_1";
  names.router_norm = "router.scale";
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.experts_sum_norm = "post_feedforward_layernorm_2";
  LayerTensors(names, c, t);
  PerLayerTensors(c, t);
}

std::vector<BufferRow> Buffers(const RankShard& shard) {
  std::vector<BufferRow> rows = LayerBuffers(shard);
  for (const BufferRow& row : PerLayerBuffers(*shard.model)) rows.push_back(row);
  return rows;
}

absl::Status Forward(Decoder& d) {
  BH_RETURN_IF_ERROR(SequentialLayer(d));
  AddPerLayerInput(d);
  return absl::OkStatus();
}

}  // namespace

Family gemma4() {
  return {.spec = {.architecture = "Gemma4ForCausalLM",
                   .model_type = "gemma4_text",
                   .read_config = ReadConfig,
                   .model_tensors = Tensors,
                   .layer_tensors = TensorsOfLayer,
                   .rope = {.theta = 1e6,
                            .window_theta = 1e4,
                            .is_partial = true,
                            .partial_rotary_factor = 0.25,
                            .is_proportional = true}},
          .buffers = Buffers,
          .forward = Forward,
          .begin = BeginPerLayerInputs};
}

}  // namespace bulkhead::families
