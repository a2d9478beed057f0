#include "shard/model_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "shard/config_fields.h"
#include "shard/field_policy.h"
#include "shard/model_folder.h"
#include "shard/quantization_config.h"
#include "shard/rope_config.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr size_t kMaxUnknownFieldsNamed = 50;

// The limits keep every product of two of these numbers and a number format's size within 2^45.
constexpr int kMaxHiddenSize = 1 << 17;
constexpr int kMaxIntermediateSize = 1 << 20;
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxVocabSize = 1 << 22;

// What a family computes, and what its fields mean where the config is silent.
struct Family {
  const char* architecture;
  const char* model_type;
  bool always_qkv_bias;
  bool reads_attention_bias;
  bool reads_mlp_bias;
  bool qk_norm;
  int default_kv_heads;  // 0: as many as heads
  int default_head_dim;  // 0: hidden_size / num_attention_heads
  int default_max_positions;
  int default_window;       // 0: the family has none
  bool window_is_switched;  // by use_sliding_window
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", false, true, true, false, 0, 0, 2048, 0, false},
    {"MistralForCausalLM", "mistral", false, false, false, false, 8, 0, 131072, 4096, false},
    {"Qwen2ForCausalLM", "qwen2", true, false, false, false, 32, 0, 32768, 4096, true},
    {"Qwen3ForCausalLM", "qwen3", false, true, false, true, 32, 128, 32768, 4096, true},
};

std::string SupportedFamilies() {
  return absl::StrJoin(kFamilies, ", ", [](std::string* out, const Family& family) {
    absl::StrAppend(out, family.architecture, " (", family.model_type, ")");
  });
}

// Null with fields.status() set where the model is none of ours.
const Family* FindFamily(ConfigFields& fields) {
  const std::vector<std::string> architectures =
      fields.Strings("architectures").value_or(std::vector<std::string>());
  const std::string model_type = fields.String("model_type").value_or("");
  if (!fields.status().ok()) return nullptr;
  if (architectures.empty() && model_type.empty()) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(fields.source(), ": names neither architectures nor model_type")));
    return nullptr;
  }
  for (const Family& family : kFamilies) {
    // One of the two may be missing, but they may not contradict each other.
    if (!architectures.empty() && architectures.front() != family.architecture) continue;
    if (!model_type.empty() && model_type != family.model_type) continue;
    return &family;
  }
  fields.Fail(absl::UnimplementedError(absl::StrCat(
      fields.source(), ": architecture ",
      architectures.empty() ? "(none)" : JsonExcerpt(nlohmann::json(architectures.front())),
      " with model_type ", model_type.empty() ? "(none)" : JsonExcerpt(nlohmann::json(model_type)),
      " is not supported; supported are ", SupportedFamilies())));
  return nullptr;
}

void ReadSizes(ConfigFields& fields, const Family& family, ModelConfig& config) {
  config.hidden_size = fields.RequiredInt("hidden_size", 1, kMaxHiddenSize);
  config.intermediate_size = fields.RequiredInt("intermediate_size", 1, kMaxIntermediateSize);
  config.num_hidden_layers = fields.RequiredInt("num_hidden_layers", 1, kMaxLayers);
  config.num_attention_heads = fields.RequiredInt("num_attention_heads", 1, kMaxHeads);
  config.vocab_size = fields.RequiredInt("vocab_size", 1, kMaxVocabSize);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 1, kMaxPositionEmbeddings)
                                       .value_or(family.default_max_positions);
  config.rms_norm_eps =
      static_cast<float>(fields.Number("rms_norm_eps", 1e-12, 0.1).value_or(1e-6));

  const bool default_kv_heads = !fields.Has("num_key_value_heads") && family.default_kv_heads > 0;
  config.num_key_value_heads =
      fields.Int("num_key_value_heads", 1, kMaxHeads)
          .value_or(default_kv_heads ? family.default_kv_heads : config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    fields.Invalid(
        "num_attention_heads",
        absl::StrCat("it must be a multiple of num_key_value_heads, ", config.num_key_value_heads));
  }

  const bool default_head_dim = !fields.Has("head_dim") && family.default_head_dim > 0;
  const std::optional<int> head_dim = fields.Int("head_dim", 2, kMaxHeadDim);
  config.head_dim = head_dim.value_or(
      default_head_dim ? family.default_head_dim : config.hidden_size / config.num_attention_heads);
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
}

// A bias that the family does not read is refused when switched on, so that no switch is passed
// over.
bool ReadBias(ConfigFields& fields, const char* name, bool family_reads_it) {
  if (family_reads_it) return fields.Bool(name).value_or(false);
  fields.RefuseUnlessOff(name);
  return false;
}

void ReadSwitches(ConfigFields& fields, const Family& family, ModelConfig& config) {
  if (family.always_qkv_bias) {
    fields.Ignore("attention_bias");
    config.qkv_bias = true;
  } else {
    config.qkv_bias = ReadBias(fields, "attention_bias", family.reads_attention_bias);
    config.o_bias = config.qkv_bias;
  }
  config.mlp_bias = ReadBias(fields, "mlp_bias", family.reads_mlp_bias);
  config.qk_norm = family.qk_norm;
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings").value_or(false);

  for (const char* name : {"hidden_act", "hidden_activation"}) {
    const std::string activation = fields.String(name).value_or("silu");
    if (activation != "silu" && activation != "swish")
      fields.Unsupported(name, "supported is silu");
  }
  const std::optional<double> query_scale = fields.Number("query_pre_attn_scalar", 0, 1e9);
  if (query_scale.has_value() && *query_scale != config.head_dim) {
    fields.Unsupported("query_pre_attn_scalar",
                       absl::StrCat("it must be absent or head_dim, ", config.head_dim));
  }

  // Both spellings of the number format; the newer one wins where a file has both.
  for (const char* name : {"torch_dtype", "dtype"}) {
    const std::optional<std::string> text = fields.String(name);
    if (!text.has_value()) continue;
    const absl::StatusOr<DType> dtype = ParseDType(absl::StripPrefix(*text, "torch."));
    if (dtype.ok()) {
      config.dtype = *dtype;
    } else {
      fields.Unsupported(name, "supported are float32, bfloat16 and float16");
    }
  }
}

void ReadWindow(ConfigFields& fields, const Family& family, ModelConfig& config) {
  const bool stated = fields.Has("sliding_window");
  int window = fields.Int("sliding_window", 1, kMaxPositionEmbeddings)
                   .value_or(stated ? 0 : family.default_window);
  const bool is_on = fields.Bool("use_sliding_window").value_or(!family.window_is_switched);
  const int max_window_layers = fields.Int("max_window_layers", 0, 1 << 20).value_or(28);
  if (family.default_window == 0 && window > 0)
    fields.Unsupported("sliding_window", "this family has none");
  if (!is_on) window = 0;
  config.sliding_window = window;

  // Qwen's upper layers use the window, Mistral's all do; layer_types says it layer by layer.
  const int first_layer = family.window_is_switched ? max_window_layers : 0;
  config.layer_uses_window.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layer_uses_window[layer] = window > 0 && layer >= first_layer;
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
    const bool uses_window = type == "sliding_attention";
    if (!uses_window && type != "full_attention") {
      fields.Unsupported("layer_types", "supported are full_attention and sliding_attention");
    } else if (uses_window && window == 0) {
      fields.Invalid("layer_types", "it has sliding_attention, but sliding_window is off");
    }
    config.layer_uses_window[layer] = uses_window;
  }
}

void AddEosTokenIds(ConfigFields& fields, ModelConfig& config) {
  for (const int id : fields.IntOrList("eos_token_id", 0, config.vocab_size - 1)) {
    config.eos_token_ids.push_back(id);
  }
}

// A warning per unknown field, or the refusal of the first.
absl::Status TakeUnknownNames(absl::string_view source, const std::vector<std::string>& names,
                              UnknownFields unknown_fields, std::vector<std::string>& warnings) {
  if (names.empty()) return absl::OkStatus();
  if (unknown_fields == UnknownFields::kRefuse) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", names.front(), " is not a known field"));
  }
  for (size_t i = 0; i < std::min(names.size(), kMaxUnknownFieldsNamed); ++i) {
    warnings.push_back(absl::StrCat(source, ": ", names[i],
                                    names[i] == "auto_map"
                                        ? " names custom code of the checkpoint, which is not run"
                                        : " is not a known field; it is ignored"));
  }
  if (names.size() > kMaxUnknownFieldsNamed) {
    warnings.push_back(absl::StrCat(source, ": ", names.size() - kMaxUnknownFieldsNamed,
                                    " more fields are not known"));
  }
  return absl::OkStatus();
}

absl::Status ParseModel(const nlohmann::json& object, absl::string_view source,
                        UnknownFields unknown_fields, ParsedConfig& parsed) {
  ConfigFields fields(object, std::string(source));
  ModelConfig& config = parsed.model;
  const Family* family = FindFamily(fields);
  if (family == nullptr) return fields.status();
  config.architecture = family->architecture;
  config.model_type = family->model_type;
  ReadSizes(fields, *family, config);
  BH_RETURN_IF_ERROR(fields.status());  // what follows indexes by these numbers
  ReadSwitches(fields, *family, config);
  ReadWindow(fields, *family, config);
  AddEosTokenIds(fields, config);
  config.quantization = ReadQuantizationConfig(fields);
  std::vector<std::string> unknown_in_rope;
  config.rope = ReadRopeConfig(fields, unknown_in_rope);
  ApplyConfigFieldPolicy(fields);
  BH_RETURN_IF_ERROR(fields.status());
  std::vector<std::string> unknown = fields.UnknownNames();
  unknown.insert(unknown.end(), unknown_in_rope.begin(), unknown_in_rope.end());
  return TakeUnknownNames(source, unknown, unknown_fields, parsed.warnings);
}

absl::Status ParseGeneration(const nlohmann::json& object, absl::string_view source,
                             UnknownFields unknown_fields, ParsedConfig& parsed) {
  ConfigFields fields(object, std::string(source));
  GenerationDefaults& generation = parsed.generation;
  generation.do_sample = fields.Bool("do_sample");
  generation.temperature = fields.Number("temperature", 0, kMaxTemperature);
  generation.top_p = fields.Number("top_p", 1e-9, 1);
  generation.min_p = fields.Number("min_p", 0, 1);
  generation.top_k = fields.Int("top_k", -1, kMaxVocabSize);
  if (generation.top_k == -1) generation.top_k = 0;  // some files write "off" so
  AddEosTokenIds(fields, parsed.model);
  std::vector<std::string> warnings = ApplyGenerationFieldPolicy(fields);
  BH_RETURN_IF_ERROR(fields.status());
  parsed.warnings.insert(parsed.warnings.end(), warnings.begin(), warnings.end());
  return TakeUnknownNames(source, fields.UnknownNames(), unknown_fields, parsed.warnings);
}

absl::StatusOr<ParsedConfig> ParseNamed(absl::string_view config_json,
                                        absl::string_view config_source,
                                        absl::string_view generation_json,
                                        absl::string_view generation_source,
                                        UnknownFields unknown_fields) {
  ParsedConfig parsed;
  BH_ASSIGN_OR_RETURN(const nlohmann::json config, ParseJsonObject(config_json, config_source));
  BH_RETURN_IF_ERROR(ParseModel(config, config_source, unknown_fields, parsed));
  if (!generation_json.empty()) {
    BH_ASSIGN_OR_RETURN(const nlohmann::json generation,
                        ParseJsonObject(generation_json, generation_source));
    BH_RETURN_IF_ERROR(ParseGeneration(generation, generation_source, unknown_fields, parsed));
  }
  std::vector<int>& ids = parsed.model.eos_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return parsed;
}

absl::StatusOr<ParsedConfig> ReadFromDirectory(const std::string& dir,
                                               UnknownFields unknown_fields) {
  const std::string config_path = absl::StrCat(dir, "/config.json");
  const std::string generation_path = absl::StrCat(dir, "/generation_config.json");
  auto config = ReadSmallFile(config_path, kMaxConfigBytes);
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(absl::StrCat(config.status().message(), HintForMissingConfig(dir)));
  }
  BH_RETURN_IF_ERROR(config.status());
  auto generation = ReadSmallFile(generation_path, kMaxConfigBytes);
  if (absl::IsNotFound(generation.status())) generation = std::string();
  BH_RETURN_IF_ERROR(generation.status());
  return ParseNamed(*config, config_path, *generation, generation_path, unknown_fields);
}

}  // namespace

absl::StatusOr<ParsedConfig> ReadModelConfig(const std::string& dir, UnknownFields unknown_fields) {
  auto parsed = ReadFromDirectory(dir, unknown_fields);
  if (!parsed.ok()) return WithExitCode(parsed.status(), ExitCode::kModelRefused);
  return parsed;
}

absl::StatusOr<ParsedConfig> ParseModelConfig(absl::string_view config_json,
                                              absl::string_view generation_config_json,
                                              UnknownFields unknown_fields) {
  auto parsed = ParseNamed(config_json, "config.json", generation_config_json,
                           "generation_config.json", unknown_fields);
  if (!parsed.ok()) return WithExitCode(parsed.status(), ExitCode::kModelRefused);
  return parsed;
}

}  // namespace bulkhead
