#include "shard/decoder_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/arithmetic.h"

namespace bulkhead {
namespace {

// The limits keep every product of two of these numbers and a number format's size within 2^45.
constexpr int kMaxHiddenSize = 1 << 17;
constexpr int kMaxConvTaps = 16;
// Over all layers: each has its own tensors, which plans and loads iterate over.
constexpr int64_t kMaxExpertsOfModel = 1 << 16;
constexpr int64_t kMaxDeltaHeadsOfModel = 1 << 16;

}  // namespace

void ReadSizes(ConfigFields& fields, const SizeDefaults& defaults, ModelConfig& config) {
  config.hidden_size = fields.RequiredInt("hidden_size", 1, kMaxHiddenSize);
  config.intermediate_size = defaults.intermediate_size > 0 && !fields.Has("intermediate_size")
                                 ? defaults.intermediate_size
                                 : fields.RequiredInt("intermediate_size", 1, kMaxIntermediateSize);
  config.num_hidden_layers = fields.RequiredInt("num_hidden_layers", 1, kMaxLayers);
  const auto required = [&fields](const char* name, int max, int by_default) {
    if (by_default > 0 && !fields.Has(name)) return by_default;
    return fields.RequiredInt(name, 1, max);
  };
  config.num_attention_heads =
      required("num_attention_heads", kMaxHeads, defaults.num_attention_heads);
  config.vocab_size = required("vocab_size", kMaxVocabSize, defaults.vocab_size);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 1, kMaxPositionEmbeddings)
                                       .value_or(defaults.max_position_embeddings);
  fields.Ignore("rms_norm_eps");  // families whose norms name it differently
  config.rms_norm_eps = static_cast<float>(
      fields.Number(defaults.norm_epsilon_name, 1e-12, 0.1).value_or(defaults.norm_epsilon));

  const bool default_kv_heads =
      !fields.Has("num_key_value_heads") && defaults.num_key_value_heads > 0;
  config.num_key_value_heads =
      fields.Int("num_key_value_heads", 1, kMaxHeads)
          .value_or(default_kv_heads ? defaults.num_key_value_heads : config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    fields.Invalid(
        "num_attention_heads",
        absl::StrCat("it must be a multiple of num_key_value_heads, ", config.num_key_value_heads));
  }

  const bool default_head_dim = !fields.Has("head_dim") && defaults.head_dim > 0;
  const std::optional<int> head_dim = fields.Int("head_dim", 2, kMaxHeadDim);
  config.head_dim = head_dim.value_or(
      default_head_dim ? defaults.head_dim : config.hidden_size / config.num_attention_heads);
  if (!head_dim.has_value() && !default_head_dim &&
      config.hidden_size % config.num_attention_heads != 0) {
    fields.Invalid("hidden_size", absl::StrCat("without head_dim it must be a multiple of "
                                               "num_attention_heads, ",
                                               config.num_attention_heads));
  }
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(fields.source(), ": head_dim is ", config.head_dim,
                     "; it must be an even number from 2 to ", kMaxHeadDim)));
  }
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(std::max(1, config.head_dim))));
}

void ReadWindow(ConfigFields& fields, const WindowDefaults& defaults, ModelConfig& config) {
  const bool stated = fields.Has("sliding_window");
  int window = fields.Int("sliding_window", defaults.is_switched ? 0 : 1, kMaxPositionEmbeddings)
                   .value_or(stated ? 0 : defaults.window);
  const bool is_on = fields.Bool("use_sliding_window").value_or(!defaults.is_switched);
  const int max_window_layers = fields.Int("max_window_layers", 0, 1 << 20).value_or(28);
  if (!defaults.has_window && window > 0)
    fields.Unsupported("sliding_window", "this family has none");
  int pattern = defaults.pattern;
  for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (defaults.pattern == 0) continue;
    if (!fields.IsNullOrMissing("layer_types")) {  // more specific, so it takes precedence
      fields.Ignore(name);
    } else {
      pattern = fields.Int(name, 1, 1 << 20).value_or(pattern);
    }
  }
  if (!is_on) window = 0;
  config.sliding_window = window;
  if (defaults.chunk > 0) {
    constexpr const char* kChunk = "attention_chunk_size";
    config.attention_chunk = fields.Int(kChunk, 1, kMaxPositionEmbeddings)
                                 .value_or(fields.Has(kChunk) ? 0 : defaults.chunk);
  }

  // Qwen's upper layers use the window, Mistral's all do, Gemma's all except every sixth;
  // layer_types gives it layer by layer.
  const int first_layer = defaults.is_switched ? max_window_layers : 0;
  config.layer_uses_window.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layer_uses_window[layer] =
        window > 0 && layer >= first_layer && (pattern == 0 || (layer + 1) % pattern != 0);
  }
  const auto layer_types = fields.Strings("layer_types");
  if (!layer_types.has_value()) return;
  if (static_cast<int>(layer_types->size()) != config.num_hidden_layers) {
    fields.Invalid("layer_types", absl::StrCat("it must have num_hidden_layers entries, ",
                                               config.num_hidden_layers));
    return;
  }
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string& type = (*layer_types)[layer];
    config.layer_uses_window[layer] = type != "full_attention";
    if (type == "chunked_attention" && config.attention_chunk > 0) continue;
    const bool uses_window = type == "sliding_attention";
    if (!uses_window && type != "full_attention") {
      fields.Unsupported("layer_types", "supported are full_attention and sliding_attention");
    } else if (uses_window && window == 0) {
      fields.Invalid("layer_types", "it has sliding_attention, but sliding_window is off");
    }
  }
}

void ReadActivationField(ConfigFields& fields, const char* name,
                         absl::Span<const Activation> allowed, ModelConfig& config) {
  static constexpr std::pair<const char*, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu2", Activation::kReluSquared}};
  const std::optional<std::string> text = fields.String(name);
  if (!text.has_value()) return;
  std::vector<std::string> supported;
  for (const auto& [spelling, activation] : kNames) {
    if (absl::c_find(allowed, activation) == allowed.end()) continue;
    supported.emplace_back(spelling);
    if (*text != spelling) continue;
    config.activation = activation;
    return;
  }
  fields.Unsupported(name, absl::StrCat("supported is ", absl::StrJoin(supported, ", ")));
}

void ReadActivation(ConfigFields& fields, absl::Span<const Activation> allowed,
                    ModelConfig& config) {
  config.activation = allowed.front();
  for (const char* name : {"hidden_act", "hidden_activation"}) {
    ReadActivationField(fields, name, allowed, config);
  }
}

void ReadMoe(ConfigFields& fields, const MoeFields& names, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  const char* stated = names.num_experts.front();
  for (const char* name : names.num_experts) {
    if (fields.Has(name)) stated = name;
  }
  moe.num_experts = names.default_num_experts > 0 && !fields.Has(stated)
                        ? names.default_num_experts
                        : fields.RequiredInt(stated, 1, kMaxExperts);
  if (int64_t{moe.num_experts} * config.num_hidden_layers > kMaxExpertsOfModel) {
    fields.Invalid(stated, absl::StrCat("over all ", config.num_hidden_layers,
                                        " layers there may be ", kMaxExpertsOfModel, " experts"));
  }
  moe.num_experts_per_tok = names.num_experts_per_tok > 0 && !fields.Has(names.per_token_name)
                                ? names.num_experts_per_tok
                                : fields.RequiredInt(names.per_token_name, 1, kMaxExpertsPerToken);
  if (moe.num_experts_per_tok > moe.num_experts) {
    fields.Invalid(names.per_token_name,
                   absl::StrCat("it must be at most ", stated, ", ", moe.num_experts));
  }
  moe.intermediate_size = fields.RequiredInt(names.intermediate_size, 1, kMaxIntermediateSize);
  // Only used in training.
  for (const char* name : {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"}) {
    fields.Ignore(name);
  }
}

void ReadSharedExperts(ConfigFields& fields, int default_count, ModelConfig& config) {
  const int count = fields.Int("n_shared_experts", 0, 64).value_or(default_count);
  config.moe.shared_intermediate_size = count * config.moe.intermediate_size;
  if (config.moe.shared_intermediate_size > kMaxIntermediateSize) {
    fields.Invalid("moe_intermediate_size",
                   absl::StrCat("it must be at most ", kMaxIntermediateSize / count, " with ",
                                count, " shared experts"));
  }
}

void SetExpertLayers(absl::FunctionRef<bool(int layer)> uses_experts, ModelConfig& config) {
  bool has_others = false;
  config.moe.layer_uses_experts.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.moe.layer_uses_experts[layer] = uses_experts(layer);
    has_others |= !uses_experts(layer);
  }
  if (!has_others) config.intermediate_size = 0;
}

void ReadMixtralMoe(ConfigFields& fields, ModelConfig& config) {
  ReadMoe(fields,
          {.num_experts = {"num_local_experts"},
           .default_num_experts = 8,
           .num_experts_per_tok = 2,
           .intermediate_size = "intermediate_size"},
          config);
  SetExpertLayers([](int) { return true; }, config);
  config.moe.router.normalizes = true;
}

void ReadExpertGroups(ConfigFields& fields, ExpertGroups by_default, int experts_per_group_score,
                      ModelConfig& config) {
  RouterOptions& router = config.moe.router;
  router.num_groups = fields.Int("n_group", 1, kMaxExperts).value_or(by_default.count);
  router.num_chosen_groups = fields.Int("topk_group", 1, kMaxExperts).value_or(by_default.chosen);
  router.experts_per_group_score = experts_per_group_score;
  if (config.moe.num_experts % router.num_groups != 0) {
    fields.Invalid("n_group",
                   absl::StrCat("it must divide the number of experts, ", config.moe.num_experts));
    return;
  }
  const int group_size = config.moe.num_experts / router.num_groups;
  if (router.num_chosen_groups > router.num_groups ||
      router.num_chosen_groups * group_size < config.moe.num_experts_per_tok) {
    fields.Invalid(
        "topk_group",
        absl::StrCat("it must be at most n_group, ", router.num_groups, ", and at least ",
                     CeilDiv(config.moe.num_experts_per_tok, group_size),
                     " for num_experts_per_tok, ", config.moe.num_experts_per_tok));
  }
}

void ReadGatedDelta(ConfigFields& fields, ModelConfig& config) {
  GatedDeltaConfig& delta = config.delta;
  delta.num_key_heads = fields.Int("linear_num_key_heads", 1, kMaxHeads).value_or(16);
  delta.num_value_heads = fields.Int("linear_num_value_heads", 1, kMaxHeads).value_or(32);
  delta.key_dim = fields.Int("linear_key_head_dim", 1, kMaxHeadDim).value_or(128);
  delta.value_dim = fields.Int("linear_value_head_dim", 1, kMaxHeadDim).value_or(128);
  delta.conv_taps = fields.Int("linear_conv_kernel_dim", 2, kMaxConvTaps).value_or(4);
  if (delta.num_value_heads % delta.num_key_heads != 0) {
    fields.Invalid(
        "linear_num_value_heads",
        absl::StrCat("it must be a multiple of linear_num_key_heads, ", delta.num_key_heads));
  }
  if (int64_t{delta.num_value_heads} * config.num_hidden_layers > kMaxDeltaHeadsOfModel) {
    fields.Invalid("linear_num_value_heads",
                   absl::StrCat("over all ", config.num_hidden_layers, " layers there may be ",
                                kMaxDeltaHeadsOfModel, " heads with linear attention"));
  }
  for (const auto& [name, heads, dim] :
       {std::tuple{"linear_num_key_heads", delta.num_key_heads, delta.key_dim},
        std::tuple{"linear_num_value_heads", delta.num_value_heads, delta.value_dim}}) {
    const int of_head = dim * delta.conv_taps;  // convolution weights, one vector
    if (heads <= kMaxIntermediateSize / of_head) continue;
    fields.Invalid(
        name, absl::StrCat("it must be at most ", kMaxIntermediateSize / of_head, " for heads of ",
                           dim, " and linear_conv_kernel_dim ", delta.conv_taps));
  }
  config.attention_gate = fields.Bool("attn_output_gate").value_or(true);
  const int interval = fields.Int("full_attention_interval", 1, kMaxLayers).value_or(4);
  const auto types = fields.Strings("layer_types");
  if (types.has_value() && static_cast<int>(types->size()) != config.num_hidden_layers) {
    fields.Invalid("layer_types", absl::StrCat("it must have num_hidden_layers entries, ",
                                               config.num_hidden_layers));
    return;
  }
  config.layer_uses_window.resize(config.num_hidden_layers);
  delta.layer_uses_delta.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool has_attention =
        types.has_value() ? (*types)[layer] == "full_attention" : (layer + 1) % interval == 0;
    delta.layer_uses_delta[layer] = !has_attention;
    if (types.has_value() && !has_attention && (*types)[layer] != "linear_attention") {
      fields.Unsupported("layer_types", "supported are full_attention and linear_attention");
    }
  }
  if (!absl::c_linear_search(delta.layer_uses_delta, false)) {
    fields.Invalid("layer_types", "one layer at least must have full_attention");
  }
  fields.Ignore("mamba_ssm_dtype");  // states are f32
}

float ReadFactor(ConfigFields& fields, const char* name, double by_default) {
  return static_cast<float>(fields.Number(name, 1e-6, 1e6).value_or(by_default));
}

float ReadSoftCap(ConfigFields& fields, const char* name, double by_default) {
  return static_cast<float>(
      fields.Number(name, 1e-3, 1e6).value_or(fields.Has(name) ? 0 : by_default));
}

}  // namespace bulkhead
