// ModelConfig: config.json, validated once. Everything after it may use these numbers as sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/activation.h"
#include "memory/matrix.h"

namespace bulkhead {

struct FamilySpec;  // shard/family_spec.h

// Each as transformers' modeling_rope_utils.py has it.
// kNtkAlpha: theta times factor^(r / (r - 2)) (Hunyuan).
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope, kNtkAlpha };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  int original_max_position_embeddings = 0;  // llama3, yarn, longrope
  double beta_fast = 32.0;                   // yarn
  double beta_slow = 1.0;
  bool truncate = true;                // yarn: whether its borders are whole columns
  double attention_factor = 1.0;       // yarn, longrope: cosines and sines are multiplied by it
  std::vector<double> short_factor;    // longrope [r/2]: where max_model_len is not beyond the
  std::vector<double> long_factor;     // original context, and where it is
  double partial_rotary_factor = 1.0;  // r / d
  double llama_4_scaling_beta = 0.0;   // of q by position (ModelConfig::q_scale_beta)

  bool operator==(const RopeConfig&) const = default;
};

// r: the columns of a head of `head_dim` that are turned.
int RotaryDim(const RopeConfig& rope, int head_dim);

// What `quantization_config` says of the layers' matrices: AWQ and GPTQ, 4 bits.
struct QuantizationConfig {
  enum class Method { kNone, kAwq, kGptq };
  Method method = Method::kNone;
  int group_size = 0;      // inputs: 32, 64 or 128
  bool act_order = false;  // GPTQ's desc_act: g_idx says which group an input is in

  bool operator==(const QuantizationConfig&) const = default;
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
  int num_key_value_heads = 0;         // K
  int head_dim = 0;                    // d
  int vocab_size = 0;                  // V
  int num_experts = 0;                 // E; no family reads it yet
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // of layers with a window, where theirs is another
  bool rope_interleaved = false;          // pairs are neighbouring columns
  std::vector<bool> layer_uses_rope;      // [L]; empty: all do
  double q_scale_beta = 0.0;  // q times 1 + beta ln(1 + floor(position / rope's original context))
  int sliding_window = 0;     // 0: none
  std::vector<bool> layer_uses_window;  // [L]; all false without a window
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k and v projections
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RmsNorm on the heads of q and k (Qwen3)
  bool qk_norm_after_rope = false;
  bool layer_norm = false;       // LayerNorm, else RmsNorm
  bool norm_bias = false;        // of LayerNorm
  float norm_weight_offset = 0;  // norms multiply by this + what the checkpoint has
  bool norms_sums = false;       // what a half of a layer adds is normed
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  bool products_read_residual = false;  // a half of a layer has no norm before it
  float attention_scale = 0;            // of scores
  float attention_soft_cap = 0;         // 0: none
  float embedding_multiplier = 1;
  float residual_multiplier = 1;  // of what a half of a layer adds
  float logit_multiplier = 1;
  float logit_soft_cap = 0;
  QuantizationConfig quantization;
  std::optional<DType> dtype;      // of the checkpoint, where the config says
  std::vector<int> eos_token_ids;  // of config.json and generation_config.json together, ascending

  // In tokens; 0: the layer sees all.
  int WindowOf(int layer) const { return layer_uses_window[layer] ? sliding_window : 0; }
  bool UsesRope(int layer) const { return layer_uses_rope.empty() || layer_uses_rope[layer]; }
};

// The largest temperature that a request or a checkpoint may ask for.
inline constexpr double kMaxTemperature = 100.0;

// Sampling defaults of generation_config.json; unset where it says nothing.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
};

struct ParsedConfig {
  ModelConfig model;
  GenerationDefaults generation;
  std::vector<std::string> fields;    // "hidden_size=64": what was read of config.json, by name
  std::vector<std::string> warnings;  // one per unknown field, and per sampling default not applied
};

enum class UnknownFields { kWarn, kRefuse };

// Reads DIR/config.json and, where present, DIR/generation_config.json, of a model of one of
// `families`. Failures carry exit code 3 (base/exit_code.h): NOT_FOUND when there is no config,
// INVALID_ARGUMENT naming file, field, value and limit, UNIMPLEMENTED naming the architecture or
// the field whose value is not supported.
absl::StatusOr<ParsedConfig> ReadModelConfig(const std::string& dir, UnknownFields unknown_fields,
                                             absl::Span<const FamilySpec* const> families);

// The two steps of it, on text (for tests, fuzzing and planning without a checkpoint).
absl::StatusOr<ParsedConfig> ParseModelConfig(absl::string_view config_json,
                                              absl::string_view generation_config_json,
                                              UnknownFields unknown_fields,
                                              absl::Span<const FamilySpec* const> families);

}  // namespace bulkhead
