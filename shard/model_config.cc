#include "shard/model_config.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "shard/config_fields.h"
#include "shard/decoder_fields.h"
#include "shard/family_spec.h"
#include "shard/field_policy.h"
#include "shard/model_folder.h"
#include "shard/quantization_config.h"
#include "shard/rope_config.h"
#include "shard/tensor_row.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr size_t kMaxUnknownFieldsNamed = 50;

std::string NamesOf(FamilySpecs families) {
  return absl::StrJoin(families, ", ", [](std::string* out, const FamilySpec* family) {
    absl::StrAppend(out, family->architecture, " (", family->model_type, ")");
  });
}

// " (nearest is Qwen2ForCausalLM)", by the common prefix of architecture names.
std::string NearestText(const std::vector<std::string>& architectures, FamilySpecs families) {
  constexpr int64_t kMinAlike = 5;
  if (architectures.empty()) return "";
  const std::string wanted = absl::AsciiStrToLower(architectures.front());
  const auto alike = [&](const FamilySpec* family) {
    const std::string name = absl::AsciiStrToLower(family->architecture);
    return std::mismatch(wanted.begin(), wanted.end(), name.begin(), name.end()).first -
           wanted.begin();
  };
  const auto nearest = std::max_element(
      families.begin(), families.end(),
      [&](const FamilySpec* a, const FamilySpec* b) { return alike(a) < alike(b); });
  if (nearest == families.end() || alike(*nearest) < kMinAlike) return "";
  return absl::StrCat(" (nearest is ", (*nearest)->architecture, ")");
}

// Null with fields.status() set if none of `families` matches.
const FamilySpec* FindFamily(ConfigFields& fields, FamilySpecs families) {
  const std::vector<std::string> architectures =
      fields.Strings("architectures").value_or(std::vector<std::string>());
  const std::string model_type = fields.String("model_type").value_or("");
  if (!fields.status().ok()) return nullptr;
  if (architectures.empty() && model_type.empty()) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(fields.source(), ": names neither architectures nor model_type")));
    return nullptr;
  }
  for (const FamilySpec* family : families) {
    // One of the two may be missing, but they must not contradict each other.
    if (!architectures.empty() && architectures.front() != family->architecture) continue;
    if (!model_type.empty() && model_type != family->model_type) continue;
    return family;
  }
  fields.Fail(absl::UnimplementedError(absl::StrCat(
      fields.source(), ": architecture ",
      architectures.empty() ? "(none)" : JsonExcerpt(nlohmann::json(architectures.front())),
      " with model_type ", model_type.empty() ? "(none)" : JsonExcerpt(nlohmann::json(model_type)),
      " is not supported", NearestText(architectures, families), "; supported are ",
      NamesOf(families))));
  return nullptr;
}

// Both spellings of the number format; the newer one wins if both are present.
void ReadDType(ConfigFields& fields, ModelConfig& config) {
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

void AddEosTokenIds(ConfigFields& fields, ModelConfig& config) {
  for (const int id : fields.IntOrList("eos_token_id", 0, config.vocab_size - 1)) {
    config.eos_token_ids.push_back(id);
  }
}

// transformers' versions differ in whether the nested or the outer field counts: either may set it,
// and an lm_head in the checkpoint overrules both.
void ReadTies(ConfigFields& outer, ConfigFields& fields, ModelConfig& config) {
  const std::optional<bool> of_whole = outer.Bool("tie_word_embeddings");
  const std::optional<bool> of_text = fields.Bool("tie_word_embeddings");
  if (!of_whole.has_value() && !of_text.has_value()) return;
  config.tie_word_embeddings = of_whole.value_or(false) || of_text.value_or(false);
}

// A warning per unknown field, or an error for the first.
absl::Status TakeUnknownNames(absl::string_view source, const std::vector<std::string>& names,
                              UnknownFields unknown_fields, std::vector<std::string>& warnings) {
  if (names.empty()) return absl::OkStatus();
  if (unknown_fields == UnknownFields::kRefuse) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", names.front(), " is not a known field"));
  }
  for (size_t i = 0; i < std::min(names.size(), kMaxUnknownFieldsNamed); ++i) {
    warnings.push_back(absl::StrCat(source, ": ", names[i],
                                    absl::StartsWith(names[i], "auto_map")
                                        ? " names custom code of the checkpoint, which is not run"
                                        : " is not a known field; it is ignored"));
  }
  if (names.size() > kMaxUnknownFieldsNamed) {
    warnings.push_back(absl::StrCat(source, ": ", names.size() - kMaxUnknownFieldsNamed,
                                    " more fields are not known"));
  }
  return absl::OkStatus();
}

// Warns of a KV cache format in a quantised checkpoint that is served without it.
void WarnOfKvCacheScheme(const nlohmann::json& object, absl::string_view source,
                         std::vector<std::string>& warnings) {
  const auto quantization = object.find("quantization_config");
  if (quantization == object.end() || !quantization->is_object()) return;
  for (const char* name : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    const auto scheme = quantization->find(name);
    if (scheme == quantization->end() || scheme->is_null()) continue;
    return warnings.push_back(absl::StrCat(source, ": quantization_config.", name,
                                           " is not applied: keys and values are held as ",
                                           "--kv-cache-dtype says"));
  }
}

// The served part of a multimodal checkpoint: text_config of an outer object of `family`.
absl::StatusOr<ConfigFields> TextFields(ConfigFields& outer, const FamilySpec& family) {
  const nlohmann::json* text = outer.Object("text_config");
  if (text == nullptr) outer.Invalid("text_config", "it is needed");
  BH_RETURN_IF_ERROR(outer.status());
  ConfigFields fields(*text, outer.source(), "text_config.");
  const std::optional<std::string> type = fields.String("model_type");
  const std::vector<std::string> served = absl::StrSplit(family.text_model_types, ',');
  if (type.has_value() && !absl::c_linear_search(served, *type)) {
    fields.Unsupported("model_type", absl::StrCat(family.architecture, " supports ",
                                                  absl::StrJoin(served, " or ")));
  }
  BH_RETURN_IF_ERROR(fields.status());
  return fields;
}

// Unknown fields outside text_config; fields of the text part count only inside it.
std::vector<std::string> UnknownNamesOutside(ConfigFields& outer) {
  ApplyOuterFieldPolicy(outer);
  std::vector<std::string> names = outer.UnknownNames();
  for (std::string& name : names) name += " (outside text_config)";
  return names;
}

absl::Status ParseModel(const nlohmann::json& object, absl::string_view source,
                        UnknownFields unknown_fields, FamilySpecs families, ParsedConfig& parsed) {
  ConfigFields outer(object, std::string(source));
  ModelConfig& config = parsed.model;
  config.family = FindFamily(outer, families);
  if (config.family == nullptr) return outer.status();
  std::optional<ConfigFields> nested;
  if (config.family->has_text_config()) {
    BH_ASSIGN_OR_RETURN(nested, TextFields(outer, *config.family));
  }
  ConfigFields& fields = nested.has_value() ? *nested : outer;
  config.architecture = config.family->architecture;
  config.model_type = config.family->model_type;
  ReadDType(fields, config);
  if (nested.has_value()) ReadDType(outer, config);
  config.family->read_config(fields, config);
  ReadTies(outer, fields, config);
  AddEosTokenIds(fields, config);
  if (nested.has_value()) {
    parsed.warnings.push_back(absl::StrCat(source, ": of ", config.architecture,
                                           " the text part is served; there are no images"));
    for (const char* name : {"architectures", "model_type"}) fields.Ignore(name);
    AddEosTokenIds(outer, config);
    BH_RETURN_IF_ERROR(outer.status());
  }
  config.quantization = ReadQuantizationConfig(outer);
  BH_RETURN_IF_ERROR(outer.status());
  if (config.quantization.act_order && config.moe.num_experts > 0) {
    return absl::UnimplementedError(
        absl::StrCat(source,
                     ": quantization_config: act order (desc_act, actorder) is not "
                     "supported in a mixture of experts"));
  }
  if (!config.quantization.fp8_kv) WarnOfKvCacheScheme(object, source, parsed.warnings);
  std::vector<std::string> unknown_in_rope;
  ReadRope(fields, config.family->rope, config, unknown_in_rope);
  ApplyConfigFieldPolicy(fields);
  BH_RETURN_IF_ERROR(fields.status());
  parsed.fields = fields.Values();
  if (nested.has_value()) {
    for (std::string& field : outer.Values()) {
      if (!absl::StartsWith(field, "text_config=")) parsed.fields.push_back(std::move(field));
    }
  }
  std::vector<std::string> unknown = fields.UnknownNames();
  unknown.insert(unknown.end(), unknown_in_rope.begin(), unknown_in_rope.end());
  if (nested.has_value()) {
    const std::vector<std::string> outside = UnknownNamesOutside(outer);
    unknown.insert(unknown.end(), outside.begin(), outside.end());
  }
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
  generation.repetition_penalty =
      fields.Number("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty);
  generation.top_k = fields.Int("top_k", -1, kMaxVocabSize);
  if (generation.top_k == -1) generation.top_k = 0;  // some files write "off" so
  AddEosTokenIds(fields, parsed.model);
  std::vector<std::string> warnings = ApplyGenerationFieldPolicy(fields);
  BH_RETURN_IF_ERROR(fields.status());
  parsed.warnings.insert(parsed.warnings.end(), warnings.begin(), warnings.end());
  return TakeUnknownNames(source, fields.UnknownNames(), unknown_fields, parsed.warnings);
}

// For older Model Optimizer checkpoints: makes a quantization_config from their separate file
// (`json`; empty: there is none).
absl::Status AddModelOptConfig(absl::string_view json, absl::string_view source,
                               nlohmann::json& config) {
  if (json.empty() || config.contains("quantization_config")) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(nlohmann::json object, ParseJsonObject(json, source));
  const auto quantization = object.find("quantization");
  if (quantization == object.end() || !quantization->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": quantization must be an object"));
  }
  if (quantization->value("quant_algo", nlohmann::json()).is_null()) return absl::OkStatus();
  config["quantization_config"] = *quantization;
  config["quantization_config"]["quant_method"] = "modelopt";
  return absl::OkStatus();
}

// The experts of a layer are multiplied together: either all are quantised, or none.
absl::Status CheckExpertsAlike(const ModelConfig& config, absl::string_view source) {
  if (config.moe.num_experts == 0 || config.quantization.modules == nullptr) {
    return absl::OkStatus();
  }
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    std::map<int, const TensorRow*> firsts;  // by slot
    const std::vector<TensorRow> rows = LayerTensors(config, layer);
    for (const TensorRow& row : rows) {
      if (row.expert < 0 || row.is_vector()) continue;  // biases are never quantised
      const TensorRow& first = *firsts.try_emplace(row.slot, &row).first->second;
      if (row.held_as == first.held_as) continue;
      return absl::UnimplementedError(absl::StrCat(
          source, ": quantization_config leaves out '", row.Module(), "' and not '", first.Module(),
          "', or the other way round; all experts of a layer must be quantised, or none"));
    }
  }
  return absl::OkStatus();
}

struct ConfigFile {
  std::string source;
  std::string json;  // empty: there is none
};

absl::StatusOr<ParsedConfig> ParseFiles(const ConfigFile& config_file, const ConfigFile& generation,
                                        const ConfigFile& modelopt, UnknownFields unknown_fields,
                                        FamilySpecs families) {
  ParsedConfig parsed;
  BH_ASSIGN_OR_RETURN(nlohmann::json config, ParseJsonObject(config_file.json, config_file.source));
  BH_RETURN_IF_ERROR(AddModelOptConfig(modelopt.json, modelopt.source, config));
  BH_RETURN_IF_ERROR(ParseModel(config, config_file.source, unknown_fields, families, parsed));
  BH_RETURN_IF_ERROR(CheckExpertsAlike(parsed.model, config_file.source));
  if (!generation.json.empty()) {
    BH_ASSIGN_OR_RETURN(const nlohmann::json object,
                        ParseJsonObject(generation.json, generation.source));
    BH_RETURN_IF_ERROR(ParseGeneration(object, generation.source, unknown_fields, parsed));
  }
  std::vector<int>& ids = parsed.model.eos_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return parsed;
}

absl::StatusOr<ConfigFile> ReadOptional(const std::string& dir, const char* name) {
  ConfigFile file{absl::StrCat(dir, "/", name), ""};
  auto json = ReadSmallFile(file.source, kMaxConfigBytes);
  if (absl::IsNotFound(json.status())) return file;
  BH_ASSIGN_OR_RETURN(file.json, std::move(json));
  return file;
}

absl::StatusOr<ParsedConfig> ReadFromDirectory(const std::string& dir, UnknownFields unknown_fields,
                                               FamilySpecs families) {
  ConfigFile config{absl::StrCat(dir, "/config.json"), ""};
  auto json = ReadSmallFile(config.source, kMaxConfigBytes);
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(absl::StrCat(json.status().message(), HintForMissingConfig(dir)));
  }
  BH_ASSIGN_OR_RETURN(config.json, std::move(json));
  BH_ASSIGN_OR_RETURN(const ConfigFile generation, ReadOptional(dir, "generation_config.json"));
  BH_ASSIGN_OR_RETURN(const ConfigFile modelopt, ReadOptional(dir, "hf_quant_config.json"));
  return ParseFiles(config, generation, modelopt, unknown_fields, families);
}

}  // namespace

std::string DefaultsText(const GenerationDefaults& defaults) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, const auto& value) {
    if (value.has_value()) parts.push_back(absl::StrCat(name, " ", *value));
  };
  const bool greedy = defaults.do_sample == std::optional<bool>(false);
  add("temperature", greedy ? std::optional<double>(0.0) : defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  return absl::StrJoin(parts, ", ");
}

int RotaryDim(const RopeConfig& rope, int head_dim) {
  return static_cast<int>(head_dim * rope.partial_rotary_factor);
}

absl::StatusOr<ParsedConfig> ReadModelConfig(const std::string& dir, UnknownFields unknown_fields,
                                             FamilySpecs families) {
  auto parsed = ReadFromDirectory(dir, unknown_fields, families);
  if (!parsed.ok()) return WithExitCode(parsed.status(), ExitCode::kModelRefused);
  return parsed;
}

ModelConfig MtpConfigOf(const ModelConfig& model) {
  ModelConfig config = model;
  config.mtp_layer = model.num_hidden_layers;
  config.num_hidden_layers = 1;
  if (config.moe.num_experts > 0) {
    config.moe.layer_uses_experts = {true};
    config.intermediate_size = 0;  // it has no MLP
  }
  config.layer_uses_window = {false};
  config.delta = {};
  config.adapters.clear();
  return config;
}

absl::StatusOr<ParsedConfig> ParseModelConfig(absl::string_view config_json,
                                              absl::string_view generation_config_json,
                                              UnknownFields unknown_fields, FamilySpecs families) {
  auto parsed = ParseFiles({"config.json", std::string(config_json)},
                           {"generation_config.json", std::string(generation_config_json)}, {},
                           unknown_fields, families);
  if (!parsed.ok()) return WithExitCode(parsed.status(), ExitCode::kModelRefused);
  return parsed;
}

}  // namespace bulkhead
