// The quantization_config of NVIDIA's Model Optimizer, in NVFP4.
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "shard/module_filter.h"
#include "shard/quantization_config.h"

namespace bulkhead {
namespace {

// A shell's wildcards as a regular expression, of a module with all that it holds.
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

// What quant_algo says already, once more.
void CheckGroups(ConfigFields& outer) {
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
  if (fields.Int("num_bits", 1, 64).value_or(4) != 4) fields.Unsupported("num_bits", "4 is");
  if (fields.Int("group_size", -1, kMaxGroupSize).value_or(kNvfp4Group) != kNvfp4Group) {
    fields.Unsupported("group_size", "16 is");
  }
  if (!fields.status().ok()) outer.Fail(fields.status());
}

}  // namespace

void ReadModelOpt(ConfigFields& fields, QuantizationConfig& config) {
  if (fields.String("quant_algo").value_or("") != "NVFP4") {
    return fields.Unsupported("quant_algo", "NVFP4 is");
  }
  config.method = QuantizationConfig::Method::kModelOptNvfp4;
  config.group_size = fields.Int("group_size", -1, kMaxGroupSize).value_or(kNvfp4Group);
  if (config.group_size != kNvfp4Group) fields.Unsupported("group_size", "16 is");
  CheckGroups(fields);
  ModuleFilter modules;
  modules.targets.AddAll();
  for (const std::string& name : fields.Strings("ignore").value_or(std::vector<std::string>())) {
    if (!modules.ignored.AddPattern(PatternOf(name))) {
      fields.Invalid("ignore", "its names may have the wildcards * and ?");
    }
  }
  config.modules = std::make_shared<ModuleFilter>(std::move(modules));
  ReadKvCacheScheme(fields, config);  // of another one there is a warning
  if (fields.String("kv_cache_quant_algo").value_or("") == "FP8") config.fp8_kv = true;
  fields.Ignore("producer");
}

}  // namespace bulkhead
