#include "shard/quantization_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "shard/module_filter.h"

namespace bulkhead {
namespace {

// Fields that do not change how weights are read.
constexpr const char* kHarmless[] = {"act_group_aware",
                                     "backend",
                                     "block_name_to_quantize",
                                     "cache_block_outputs",
                                     "damp_percent",
                                     "dataset",
                                     "do_fuse",
                                     "exllama_config",
                                     "fuse_max_seq_len",
                                     "hyb_act",
                                     "max_input_length",
                                     "meta",
                                     "model_file_base_name",
                                     "model_name_or_path",
                                     "model_seqlen",
                                     "modules_to_fuse",
                                     "mse",
                                     "module_name_preceding_first_block",
                                     "modules_in_block_to_quantize",
                                     "pad_token_id",
                                     "quantizer",
                                     "static_groups",
                                     "sym",
                                     "tokenizer",
                                     "true_sequential",
                                     "use_cuda_fp16",
                                     "use_exllama",
                                     "exllama_version",
                                     "batch_size",
                                     "disable_exllama"};

// Fields that GPTQModel and transformers write for both methods.
void ReadPacking(ConfigFields& fields, const std::string& method) {
  if (fields.String("method").value_or(method) != method) {
    fields.Unsupported("method", method + " is");
  }
  if (fields.String("pack_dtype").value_or("int32") != "int32") {
    fields.Unsupported("pack_dtype", "int32 is");
  }
  if (fields.Bool("lm_head").value_or(false)) fields.Unsupported("lm_head", "false is");
  for (const char* name : {"dynamic", "rotation", "adapter"}) fields.RefuseUnlessOff(name);
}

// `format` is the newer name of `checkpoint_format`. One of `known`; its first is the default.
std::string FormatOf(ConfigFields& fields, const std::vector<std::string>& known,
                     const char* supported) {
  const std::optional<std::string> newer = fields.String("format");
  const std::optional<std::string> older = fields.String("checkpoint_format");
  if (newer.has_value() && older.has_value() && *newer != *older) {
    fields.Invalid("format", "it contradicts checkpoint_format, " + *older);
  }
  const std::string format = older.value_or(newer.value_or(known[0]));
  if (std::find(known.begin(), known.end(), format) == known.end()) {
    fields.Unsupported(older.has_value() ? "checkpoint_format" : "format", supported);
  }
  return format;
}

template <typename PatternOf>
void ReadNotConverted(ConfigFields& fields, QuantizationConfig& config,
                      const PatternOf& pattern_of) {
  const auto names = fields.Strings("modules_to_not_convert").value_or(std::vector<std::string>());
  if (names.empty()) return;
  ModuleFilter modules;
  modules.targets.AddAll();
  for (const std::string& name : names) {
    if (!modules.ignored.AddPattern(pattern_of(name))) {
      fields.Invalid("modules_to_not_convert", "its patterns must be regular expressions");
    }
  }
  config.modules = std::make_shared<ModuleFilter>(std::move(modules));
}

// Matches a module's name or its last parts, and all modules inside it; may be a pattern.
std::string NameOrPattern(const std::string& name) { return "(.*[.])?(" + name + ")([.].*)?$"; }

void ReadAwq(ConfigFields& fields, QuantizationConfig& config) {
  const std::string version = fields.String("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM") fields.Unsupported("version", "gemm is");
  FormatOf(fields, {"gemm", "GEMM"}, "gemm is");
  ReadPacking(fields, "awq");
  fields.RefuseUnlessOff("desc_act");
  if (!fields.Bool("zero_point").value_or(true)) fields.Unsupported("zero_point", "true is");
  // AutoAWQ leaves out every module whose name contains one of these.
  ReadNotConverted(fields, config, [](const std::string& part) {
    return ".*\\Q" + absl::StrReplaceAll(part, {{"\\E", ""}}) + "\\E";
  });
}

void ReadGptq(ConfigFields& fields, QuantizationConfig& config) {
  config.act_order = fields.Bool("desc_act").value_or(false);
  config.zeros_as_stored =
      FormatOf(fields, {"gptq", "gptq_v2"}, "gptq and gptq_v2 are") == "gptq_v2";
  ReadPacking(fields, "gptq");
}

// Group sizes. With 8 bits all groups share one zero in memory.
void ReadBitsAndGroups(ConfigFields& fields, QuantizationConfig& config) {
  if (!fields.status().ok()) return;
  const bool is_gptq = config.method == QuantizationConfig::Method::kGptq;
  config.bits = fields.RequiredInt("bits", 1, 64);
  if (fields.status().ok() && config.bits != 4 && !(is_gptq && config.bits == 8)) {
    fields.Unsupported("bits", is_gptq ? "4 and 8 are" : "4 is");
  }
  if (config.bits == 8 && !fields.Bool("sym").value_or(true)) {
    fields.Unsupported("sym", "with 8 bits true is");
  }
  config.group_size = fields.RequiredInt("group_size", -1, kMaxGroupSize);
  if (fields.status().ok() && config.group_size != -1 && !IsGroupSize(config.group_size)) {
    fields.Unsupported("group_size", "32, 64, 128 and -1 (one group of all inputs) are");
  }
  if (config.group_size == -1) {
    config.group_size = 0;
    config.act_order = false;  // all inputs are in group 0, in any order
  }
  for (const char* name : kHarmless) fields.Ignore(name);
}

// gpt-oss.
void ReadMxfp4(ConfigFields& fields, QuantizationConfig& config) {
  config.group_size = kMxfp4Group;
  ReadNotConverted(fields, config, NameOrPattern);
  fields.Ignore("dequantize");
}

// E4M3 in blocks of 128 outputs and inputs; inputs are not quantised.
void ReadFp8(ConfigFields& fields, QuantizationConfig& config) {
  config.bits = 8;
  config.group_size = config.group_outputs = 128;
  if (fields.IntOrList("weight_block_size", 1, kMaxGroupSize) != std::vector<int>{128, 128}) {
    fields.Unsupported("weight_block_size", "[128, 128] is");
  }
  const std::string format = fields.String("fmt").value_or("e4m3");
  // MiniMax M2 uses PyTorch's name.
  if (format != "e4m3" && format != "float8_e4m3fn") fields.Unsupported("fmt", "e4m3 is");
  const std::string scheme = fields.String("activation_scheme").value_or("dynamic");
  if (scheme != "dynamic") fields.Unsupported("activation_scheme", "dynamic is");
  ReadNotConverted(fields, config, NameOrPattern);
  fields.RefuseUnlessOff("modules_to_convert");
  if (fields.String("expert_dtype").value_or("fp8") != "fp8") {
    fields.Unsupported("expert_dtype", "fp8 is");
  }
  fields.Ignore("scale_fmt");
  fields.Ignore("dequantize");
}

}  // namespace

void RefuseUnknown(ConfigFields& fields) {
  const std::vector<std::string> unknown = fields.UnknownNames();
  if (!fields.status().ok() || unknown.empty()) return;
  fields.Fail(absl::UnimplementedError(fields.source() + ": " + unknown.front() +
                                       " is not known, and may change what the weights mean"));
}

bool ReadKvCacheScheme(ConfigFields& fields, QuantizationConfig& config) {
  const nlohmann::json* const object = fields.Object("kv_cache_scheme");
  if (object == nullptr || object->empty()) return true;
  ConfigFields scheme(*object, fields.source(), "quantization_config.kv_cache_scheme.");
  config.fp8_kv =
      scheme.Int("num_bits", 1, 64) == 8 && scheme.String("type").value_or("int") == "float";
  if (config.fp8_kv && !scheme.Bool("symmetric").value_or(true)) {
    scheme.Unsupported("symmetric", "true is");
  }
  scheme.RefuseUnlessOff("dynamic");  // scales computed at run time
  if (!scheme.status().ok()) fields.Fail(scheme.status());
  return config.fp8_kv;
}

QuantizationConfig ReadQuantizationConfig(ConfigFields& outer) {
  QuantizationConfig config;
  const nlohmann::json* object = outer.Object("quantization_config");
  if (object == nullptr || object->empty()) return config;
  ConfigFields fields(*object, outer.source(), "quantization_config.");
  const std::string method = fields.String("quant_method").value_or("");
  if (method == "awq") {
    config.method = QuantizationConfig::Method::kAwq;
    ReadAwq(fields, config);
    ReadBitsAndGroups(fields, config);
  } else if (method == "gptq") {
    config.method = QuantizationConfig::Method::kGptq;
    ReadGptq(fields, config);
    ReadBitsAndGroups(fields, config);
  } else if (method == "compressed-tensors") {
    ReadCompressedTensors(fields, config);
  } else if (method == "modelopt") {
    ReadModelOpt(fields, config);
  } else if (method == "mxfp4") {
    config.method = QuantizationConfig::Method::kMxfp4;
    ReadMxfp4(fields, config);
  } else if (method == "fp8") {
    config.method = QuantizationConfig::Method::kFp8;
    ReadFp8(fields, config);
  } else {
    fields.Unsupported("quant_method",
                       "awq, gptq, compressed-tensors, modelopt, mxfp4 and fp8 are");
  }
  RefuseUnknown(fields);
  if (!fields.status().ok()) outer.Fail(fields.status());
  return config;
}

}  // namespace bulkhead
