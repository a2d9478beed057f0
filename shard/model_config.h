// ModelConfig: config.json, validated once. Everything after it may use these numbers as sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/matrix.h"

namespace bulkhead {

struct FamilySpec;  // shard/family_spec.h

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3 only, as the next two
  double high_freq_factor = 4.0;
  int original_max_position_embeddings = 0;

  bool operator==(const RopeConfig&) const = default;
};

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
  int sliding_window = 0;               // 0: none
  std::vector<bool> layer_uses_window;  // [L]; all false without a window
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k and v projections
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RmsNorm on the heads of q and k (Qwen3)
  QuantizationConfig quantization;
  std::optional<DType> dtype;      // of the checkpoint, where the config says
  std::vector<int> eos_token_ids;  // of config.json and generation_config.json together, ascending

  // In tokens; 0: the layer sees all.
  int WindowOf(int layer) const { return layer_uses_window[layer] ? sliding_window : 0; }
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
