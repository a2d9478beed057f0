// The quantization_config of NVIDIA's Model Optimizer, in NVFP4 and FP8.
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "shard/module_filter.h"
#include "shard/quantization_config.h"

namespace bulkhead {
namespace {

// A shell pattern as a regular expression that matches a module and all modules inside it.
std::string PatternOf(const std::string& wildcards) {
  std::string pattern;
  for (const char c : wildcards) {
    if (c == '*') {
      pattern += ".*";
    } else if (c == '?') {
      pattern += '.';
    } else if (absl::ascii_isalnum(c) || c == '_' || c == '-') {
      pattern += c;
    } else {
      absl::StrAppend(&pattern, "[", absl::string_view(&c, 1), "]");
    }
  }
  return absl::StrCat("(", pattern, ")([.].*)?$");
}

void CheckNvfp4Group(ConfigFields& fields) {
  if (fields.Int("group_size", -1, kMaxGroupSize).value_or(kNvfp4Group) != kNvfp4Group) {
    fields.Unsupported("group_size", "16 is");
  }
}

// Checks fields that only repeat quant_algo.
void CheckGroups(ConfigFields& outer, const QuantizationConfig& config) {
  const nlohmann::json* groups = outer.Object("config_groups");
  if (groups == nullptr) return;
  if (groups->size() != 1 || !groups->begin()->is_object()) {
    return outer.Unsupported("config_groups", "one group is");
  }
  const auto weights = groups->begin()->find("weights");
  if (weights == groups->begin()->end() || !weights->is_object()) {
    return outer.Invalid("config_groups", "its group must have weights");
  }
  ConfigFields fields(*weights, outer.source(), "quantization_config.config_groups.weights.");
  if (fields.Int("num_bits", 1, 64).value_or(config.bits) != config.bits) {
    fields.Unsupported("num_bits", absl::StrCat("with its quant_algo ", config.bits, " is"));
  }
  if (config.bits == 8) {
    fields.RefuseUnlessOff("group_size");
  } else {
    CheckNvfp4Group(fields);
  }
  if (!fields.status().ok()) outer.Fail(fields.status());
}

}  // namespace

void ReadModelOpt(ConfigFields& fields, QuantizationConfig& config) {
  const std::string algorithm = fields.String("quant_algo").value_or("");
  if (algorithm == "NVFP4") {
    config.method = QuantizationConfig::Method::kModelOptNvfp4;
    CheckNvfp4Group(fields);
    config.group_size = kNvfp4Group;
  } else if (algorithm == "FP8") {  // a scale per weight; input scales are not read
    config.method = QuantizationConfig::Method::kFloatQuantized;
    config.bits = 8;
    config.group_size = config.group_outputs = 0;
    fields.RefuseUnlessOff("group_size");
  } else {
    return fields.Unsupported("quant_algo", "NVFP4 and FP8 are");
  }
  CheckGroups(fields, config);
  ModuleFilter modules;
  modules.targets.AddAll();
  for (const char* field : {"ignore", "exclude_modules"}) {
    for (const std::string& name : fields.Strings(field).value_or(std::vector<std::string>())) {
      if (!modules.ignored.AddPattern(PatternOf(name))) {
        fields.Invalid(field, "its names may have the wildcards * and ?");
      }
    }
  }
  config.modules = std::make_shared<ModuleFilter>(std::move(modules));
  ReadKvCacheScheme(fields, config);  // others give a warning
  if (fields.String("kv_cache_quant_algo").value_or("") == "FP8") config.fp8_kv = true;
  fields.Ignore("producer");
}

}  // namespace bulkhead
