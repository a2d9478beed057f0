// ModelConfig: config.json, validated once. Later code may use these numbers as sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/activation.h"
#include "base/router_options.h"
#include "memory/matrix.h"
#include "shard/adapter.h"

namespace bulkhead {

struct FamilySpec;    // shard/family_spec.h
struct ModuleFilter;  // shard/module_filter.h

// As in transformers' modeling_rope_utils.py. kNtkAlpha: theta times factor^(r / (r - 2))
// (Hunyuan). kProportional: only the first r / d of a whole head's frequencies; pairs are as in a
// head rotated whole (Gemma 4).
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope, kNtkAlpha, kProportional };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  int original_max_position_embeddings = 0;  // llama3, yarn, longrope
  double beta_fast = 32.0;                   // yarn
  double beta_slow = 1.0;
  bool truncate = true;                // yarn: round its borders to whole columns
  double attention_factor = 1.0;       // yarn, longrope: cosines and sines are multiplied by it
  double mscale_all_dim = 1.0;         // yarn: DeepSeek multiplies scores by its square
  std::vector<double> short_factor;    // longrope [r/2]: for max_model_len up to the
  std::vector<double> long_factor;     // original context, and beyond it
  double partial_rotary_factor = 1.0;  // r / d
  int whole_dim = 0;                   // proportional: d
  double llama_4_scaling_beta = 0.0;   // scales q by position (ModelConfig::q_scale_beta)

  bool operator==(const RopeConfig&) const = default;
};

// r: the number of rotated columns of a head of `head_dim`.
int RotaryDim(const RopeConfig& rope, int head_dim);

// The `quantization_config` of the layers' matrices.
struct QuantizationConfig {
  // From kPackQuantized on: compressed-tensors; kMxfp4: gpt-oss, experts only; kFp8: in blocks.
  enum class Method {
    kNone,
    kAwq,
    kGptq,
    kPackQuantized,
    kIntQuantized,
    kMxfp4PackQuantized,
    kFloatQuantized,
    kNvfp4PackQuantized,
    kModelOptNvfp4,
    kMxfp4,
    kFp8
  };
  Method method = Method::kNone;
  int group_size = 0;      // inputs that share a scale; 0: all of them
  bool act_order = false;  // g_idx says which group an input is in
  int bits = 4;
  int group_outputs = 1;                                  // that share a scale; 0: all
  bool symmetric = false;                                 // compressed-tensors: no zeros
  bool zeros_as_stored = false;                           // GPTQ v2; v1 stores them less one
  std::shared_ptr<const ModuleFilter> modules = nullptr;  // null: all
  // Keys and values are cached in fp8, with scales that the checkpoint may have.
  bool fp8_kv = false;

  bool operator==(const QuantizationConfig&) const = default;
};

// A mixture of experts (MoE): in some layers the MLP consists of `num_experts` experts; each token
// is sent to num_experts_per_tok of them, and to a shared one that all tokens are sent to.
struct MoeConfig {
  int num_experts = 0;               // E; 0: the model has none
  int num_experts_per_tok = 0;       // k
  int intermediate_size = 0;         // of an expert
  int shared_intermediate_size = 0;  // of the shared expert; 0: none
  bool shared_gate = false;          // its output is multiplied by a per-token gate
  bool correction_bias = false;      // added to scores only to choose experts
  bool router_bias = false;          // added to the router's logits
  bool biases = false;               // experts' products have biases
  bool beside_mlp = false;           // layers have experts and an MLP (Gemma 4)
  bool expert_scales = false;        // an expert's weights are multiplied by its scale
  float router_multiplier = 1;       // the router's logits are multiplied by it
  bool weighs_inputs = false;        // experts' inputs are multiplied by their weights, not outputs
  bool clamped_swiglu = false;       // as activation, with interleaved gates and ups (gpt-oss)
  float swiglu_alpha = 0;
  float swiglu_limit = 0;
  RouterOptions router;
  std::vector<bool> layer_uses_experts;  // [L]

  bool operator==(const MoeConfig&) const = default;
};

// Multi-head latent attention (MLA): keys and values of all heads are projections of one latent
// vector, and only it is cached. A key has `nope_dim` projected columns and `rope_dim` rotated
// columns of the latent.
struct LatentConfig {
  int kv_rank = 0;    // columns of the latent without rotation; 0: the model has no such attention
  int q_rank = 0;     // columns of the latent that q is a product of; 0: the layer's input
  int nope_dim = 0;   // columns of a head of q and k without rotation
  int rope_dim = 0;   // rotated columns: ModelConfig::head_dim
  int value_dim = 0;  // columns of a head of v

  int q_dim() const { return nope_dim + rope_dim; }
  int cached_dim() const { return kv_rank + rope_dim; }  // of a token and layer

  bool operator==(const LatentConfig&) const = default;
};

// Linear attention by the gated delta rule, with a state in place of keys and values.
struct GatedDeltaConfig {
  int num_key_heads = 0;  // 0: the model has no such layers
  int num_value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int conv_taps = 0;                   // of the preceding convolution
  std::vector<bool> layer_uses_delta;  // [L]; the others have attention

  bool operator==(const GatedDeltaConfig&) const = default;
};

// The heads of layers without a window, if they differ from those of layers with one (Gemma 4).
struct FullHeadsConfig {
  int num_key_value_heads = 0;
  int head_dim = 0;              // 0: all layers have the same heads
  bool values_are_keys = false;  // V is the K product before the norm and rotation of K

  bool operator==(const FullHeadsConfig&) const = default;
};

// Greatest context that a config may state (and greatest sliding window).
inline constexpr int kMaxPositionEmbeddings = 1 << 24;

// Read with these limits, so that no product of two sizes overflows: hidden_size to 2^17,
// intermediate_size to 2^20, layers, heads and head_dim to 1024, vocabulary to 2^22, context to
// 2^24; num_attention_heads is a multiple of num_key_value_heads, head_dim even.
struct ModelConfig {
  const FamilySpec* family = nullptr;  // not owned; whose tensors the model has
  std::string architecture;            // "LlamaForCausalLM"
  std::string model_type;              // "llama"
  int hidden_size = 0;                 // D
  int intermediate_size = 0;           // F
  int num_hidden_layers = 0;           // L
  int num_attention_heads = 0;         // H
  int num_key_value_heads = 0;         // K; with latent attention 1, on every rank
  int head_dim = 0;                    // d
  int vocab_size = 0;                  // V
  MoeConfig moe;
  LatentConfig latent;
  GatedDeltaConfig delta;
  FullHeadsConfig full_heads;
  // [L] the layer whose keys and values a layer reads, itself or an earlier one; empty: its own.
  std::vector<int> kv_layer;
  bool double_wide_mlp = false;  // in layers that read another's keys and values
  // P: columns per layer and token of a per-layer embedding table; 0: there is no such table.
  int per_layer_input_size = 0;
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // if layers with a window differ
  bool rope_interleaved = false;          // pairs are adjacent columns
  std::vector<bool> layer_uses_rope;      // [L]; empty: all do
  // q is multiplied by 1 + beta ln(1 + floor((position + offset) / context)), in all layers or only
  // in those without positions.
  double q_scale_beta = 0.0;
  int q_scale_context = 0;
  int q_scale_offset = 0;
  bool q_scale_without_rope = false;
  int sliding_window = 0;               // 0: none
  int attention_chunk = 0;              // a layer sees from the last multiple of it on; 0: all
  std::vector<bool> layer_uses_window;  // [L] (or chunk); all false if there is neither
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k and v projections
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RmsNorm on the heads of q and k (Qwen3)
  bool qk_norm_after_rope = false;
  bool qk_norm_of_all_heads = false;  // one norm over all heads of q, and one over k's (OLMo 2)
  // Heads of q and k normed without weights, in layers with positions (Llama 4).
  bool qk_norm_without_weight = false;
  bool normed_values = false;    // norms heads of v, without weights (Gemma 4)
  bool layer_norm = false;       // false: RmsNorm
  bool norm_bias = false;        // with layer_norm
  float norm_weight_offset = 0;  // norms multiply by this + the checkpoint's weight
  bool norms_sums = false;       // norms the outputs of attention and MLP
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  float attention_scale = 0;     // scores are multiplied by it
  float attention_soft_cap = 0;  // 0: none
  bool attention_gate = false;   // attention output is multiplied by a gate (Qwen3-Next)
  bool attention_sinks = false;  // per head a score without a value (gpt-oss)
  float embedding_multiplier = 1;
  float residual_multiplier = 1;  // attention and MLP outputs are multiplied by it
  float logit_multiplier = 1;
  float logit_soft_cap = 0;
  QuantizationConfig quantization;
  int num_mtp_layers = 0;  // multi-token prediction layers after the last layer; they draft tokens
  // In a config from MtpConfigOf: the number of its one layer in the checkpoint. 0: otherwise.
  int mtp_layer = 0;
  std::vector<AdapterConfig> adapters;  // LoRA; requests number them from 1
  std::optional<DType> dtype;           // of the checkpoint, if the config says
  std::vector<int> eos_token_ids;  // of config.json and generation_config.json together, ascending

  // In tokens; 0: the layer sees all.
  int WindowOf(int layer) const { return layer_uses_window[layer] ? sliding_window : 0; }
  int ChunkOf(int layer) const { return layer_uses_window[layer] ? attention_chunk : 0; }
  bool has_latents() const { return latent.kv_rank > 0; }
  // Cached columns of a key per KV head and token, and columns of a head's attention output.
  int CachedDim() const { return has_latents() ? latent.cached_dim() : head_dim; }
  int ValueDim() const { return has_latents() ? latent.value_dim : head_dim; }
  bool HasFullHeads(int layer) const {
    return full_heads.head_dim > 0 && !layer_uses_window[layer];
  }
  int HeadDimOf(int layer) const { return HasFullHeads(layer) ? full_heads.head_dim : head_dim; }
  int KvHeadsOf(int layer) const {
    return HasFullHeads(layer) ? full_heads.num_key_value_heads : num_key_value_heads;
  }
  bool OwnsKv(int layer) const { return kv_layer.empty() || kv_layer[layer] == layer; }
  bool ValuesAreKeys(int layer) const { return full_heads.values_are_keys && HasFullHeads(layer); }
  // MLP width in units of intermediate_size.
  int MlpFactor(int layer) const { return double_wide_mlp && !OwnsKv(layer) ? 2 : 1; }
  bool keeps_states() const { return delta.num_key_heads > 0; }
  bool UsesDelta(int layer) const { return keeps_states() && delta.layer_uses_delta[layer]; }
  bool UsesExperts(int layer) const { return moe.num_experts > 0 && moe.layer_uses_experts[layer]; }
  bool UsesRope(int layer) const { return layer_uses_rope.empty() || layer_uses_rope[layer]; }
};

// The config of the first of the model's MTP layers, which it must have: a model of one layer,
// whose input is a token's embedding and the previous hidden state.
ModelConfig MtpConfigOf(const ModelConfig& model);

// The largest temperature in a request or a checkpoint.
inline constexpr double kMaxTemperature = 100.0;

// The smallest and largest repetition penalty in either.
inline constexpr double kMinRepetitionPenalty = 0.01;
inline constexpr double kMaxRepetitionPenalty = 100.0;

// Sampling defaults of generation_config.json; unset if absent there.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<double> repetition_penalty = std::nullopt;
};

// "temperature 0.6, top_p 0.9": defaults for requests; empty if the file has none.
std::string DefaultsText(const GenerationDefaults& defaults);

struct ParsedConfig {
  ModelConfig model;
  GenerationDefaults generation;
  std::vector<std::string> fields;    // "hidden_size=64": fields read from config.json, by name
  std::vector<std::string> warnings;  // one per unknown field, and per sampling default not applied
};

enum class UnknownFields { kWarn, kRefuse };

// Reads DIR/config.json and, if present, DIR/generation_config.json, for a model of one of
// `families`. Failures carry exit code 3 (base/exit_code.h): NOT_FOUND when there is no config,
// INVALID_ARGUMENT naming file, field, value and limit, UNIMPLEMENTED naming the architecture or
// the field whose value is not supported.
absl::StatusOr<ParsedConfig> ReadModelConfig(const std::string& dir, UnknownFields unknown_fields,
                                             absl::Span<const FamilySpec* const> families);

// Its two steps, on text (for tests, fuzzing and planning without a checkpoint).
absl::StatusOr<ParsedConfig> ParseModelConfig(absl::string_view config_json,
                                              absl::string_view generation_config_json,
                                              UnknownFields unknown_fields,
                                              absl::Span<const FamilySpec* const> families);

}  // namespace bulkhead
