// The quantization_config of compressed-tensors.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "shard/module_filter.h"
#include "shard/quantization_config.h"

namespace bulkhead {
namespace {

using Method = QuantizationConfig::Method;

constexpr size_t kMaxNameBytes = 100;

// The `names` of the field: "re:" and a pattern, a module's name, or a class; the layers' products
// have the class "Linear".
ModuleList ModulesOf(ConfigFields& fields, const char* field) {
  ModuleList modules;
  for (const std::string& name : fields.Strings(field).value_or(std::vector<std::string>())) {
    absl::string_view pattern = name;
    if (name == "Linear") {
      modules.AddLinears();
    } else if (!absl::ConsumePrefix(&pattern, "re:")) {
      modules.AddName(name);
    } else if (!modules.AddPattern(std::string(pattern))) {
      fields.Invalid(field, "its patterns must be regular expressions");
    }
  }
  return modules;
}

// Reads a JSON object in `outer` with `read`, and refuses its unknown fields.
template <typename Read>
void ReadNested(ConfigFields& outer, const char* name, const std::string& prefix,
                const Read& read) {
  const nlohmann::json* object = outer.Object(name);
  if (object == nullptr) return;
  ConfigFields fields(*object, outer.source(), absl::StrCat(prefix, name, "."));
  read(fields);
  RefuseUnknown(fields);
  if (!fields.status().ok()) outer.Fail(fields.status());
}

void Expect(ConfigFields& fields, const char* name, absl::string_view value,
            const std::string& supported) {
  if (fields.status().ok() && fields.String(name).value_or("") != value) {
    fields.Unsupported(name, absl::StrCat(supported, " is"));
  }
}

// Integer codes: 4 or 8 bits.
void ReadIntegers(ConfigFields& fields, QuantizationConfig& config) {
  Expect(fields, "type", "int", "int");
  config.bits = fields.RequiredInt("num_bits", 1, 64);
  const bool packed = config.method == Method::kPackQuantized;
  if (config.bits != 8 && !(packed && config.bits == 4)) {
    fields.Unsupported("num_bits", packed ? "4 and 8 are" : "8 is");
  }
  config.symmetric = fields.Bool("symmetric").value_or(true);
  if (!config.symmetric && config.bits == 8) {
    fields.Unsupported("symmetric", "with 8 bits true is");
  }
  const std::string strategy = fields.String("strategy").value_or("");
  if (strategy == "group") {
    config.group_size = fields.RequiredInt("group_size", -1, kMaxGroupSize);
    if (fields.status().ok() && !IsGroupSize(config.group_size) &&
        (config.group_size <= 0 || config.group_size % kMaxHeldGroup != 0)) {
      fields.Unsupported("group_size", "32, 64 and multiples of 128 are");
    }
  } else if (strategy == "channel") {
    fields.Ignore("group_size");
    config.group_size = 0;
  } else {
    fields.Unsupported("strategy", "group and channel are");
  }
  const std::string order = fields.String("actorder").value_or("");
  if (order == "group" || order == "dynamic") {
    config.act_order = true;
    if (!packed || config.bits != 4 || !IsGroupSize(config.group_size)) {
      fields.Unsupported("actorder", "with 4 bits and groups of 32, 64 or 128 it is");
    }
  } else if (!order.empty() && order != "weight" && order != "static") {
    fields.Unsupported("actorder", "weight and group are");
  }
}

void ReadMxfp4(ConfigFields& fields, QuantizationConfig& config) {
  Expect(fields, "type", "float", "float");
  Expect(fields, "strategy", "group", "group");
  if (fields.RequiredInt("num_bits", 1, 64) != 4) fields.Unsupported("num_bits", "4 is");
  config.group_size = fields.RequiredInt("group_size", -1, kMaxGroupSize);
  if (config.group_size != kMxfp4Group) fields.Unsupported("group_size", "32 is");
  if (!fields.Bool("symmetric").value_or(true)) fields.Unsupported("symmetric", "true is");
  fields.RefuseUnlessOff("actorder");
}

// E4M3 scales, with one factor per tensor.
void ReadNvfp4(ConfigFields& fields, QuantizationConfig& config) {
  Expect(fields, "type", "float", "float");
  Expect(fields, "strategy", "tensor_group", "tensor_group");
  if (fields.RequiredInt("num_bits", 1, 64) != 4) fields.Unsupported("num_bits", "4 is");
  config.group_size = fields.RequiredInt("group_size", -1, kMaxGroupSize);
  if (config.group_size != kNvfp4Group) fields.Unsupported("group_size", "16 is");
  if (!fields.Bool("symmetric").value_or(true)) fields.Unsupported("symmetric", "true is");
  fields.RefuseUnlessOff("actorder");
}

// E4M3.
void ReadFp8(ConfigFields& fields, QuantizationConfig& config) {
  Expect(fields, "type", "float", "float");
  config.bits = fields.RequiredInt("num_bits", 1, 64);
  if (config.bits != 8) fields.Unsupported("num_bits", "8 is");
  if (!fields.Bool("symmetric").value_or(true)) fields.Unsupported("symmetric", "true is");
  const std::string strategy = fields.String("strategy").value_or("");
  if (strategy == "block") {
    if (fields.IntOrList("block_structure", 1, kMaxGroupSize) != std::vector<int>{128, 128}) {
      fields.Unsupported("block_structure", "[128, 128] is");
    }
    config.group_size = config.group_outputs = 128;
  } else if (strategy == "tensor" || strategy == "channel") {
    config.group_outputs = strategy == "tensor" ? 0 : 1;
    fields.RefuseUnlessOff("block_structure");
  } else {
    fields.Unsupported("strategy", "tensor, channel and block are");
  }
  fields.RefuseUnlessOff("actorder");
  fields.Ignore("group_size");
}

void ReadWeights(ConfigFields& fields, QuantizationConfig& config) {
  if (config.method == Method::kMxfp4PackQuantized) {
    ReadMxfp4(fields, config);
  } else if (config.method == Method::kNvfp4PackQuantized) {
    ReadNvfp4(fields, config);
  } else if (config.method == Method::kFloatQuantized) {
    ReadFp8(fields, config);
  } else {
    ReadIntegers(fields, config);
  }
  if (config.method != Method::kFloatQuantized) fields.RefuseUnlessOff("block_structure");
  fields.RefuseUnlessOff("dynamic");
  for (const char* name : {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"}) {
    fields.Ignore(name);
  }
}

// Inputs quantised to int8 at run time: --activation-dtype int8 does so, in finer groups. For FP8
// and NVFP4 inputs are not quantised, and their scales are not read.
void ReadInputs(ConfigFields& fields, const QuantizationConfig& config) {
  const bool nvfp4 = config.method == Method::kNvfp4PackQuantized;
  const bool floats = config.method == Method::kFloatQuantized || nvfp4;
  Expect(fields, "type", floats ? "float" : "int", floats ? "float" : "int");
  const int bits = nvfp4 ? 4 : 8;
  if (fields.RequiredInt("num_bits", 1, 64) != bits) {
    fields.Unsupported("num_bits", absl::StrCat(bits, " is"));
  }
  if (nvfp4) {
    fields.Ignore("dynamic");  // may be "local"
  } else if (!fields.Bool("dynamic").value_or(false) && !floats) {
    fields.Unsupported("dynamic", "true is");
  }
  if (!fields.Bool("symmetric").value_or(true)) fields.Unsupported("symmetric", "true is");
  for (const char* name : {"strategy", "group_size", "observer", "observer_kwargs", "actorder",
                           "block_structure", "scale_dtype", "zp_dtype"}) {
    fields.Ignore(name);
  }
}

void ReadGroup(ConfigFields& group, const std::string& prefix, const std::string& outer_format,
               QuantizationConfig& config) {
  const std::string format = group.String("format").value_or(outer_format);
  if (format == "pack-quantized") {
    config.method = Method::kPackQuantized;
  } else if (format == "int-quantized") {
    config.method = Method::kIntQuantized;
  } else if (format == "mxfp4-pack-quantized") {
    config.method = Method::kMxfp4PackQuantized;
  } else if (format == "nvfp4-pack-quantized") {
    config.method = Method::kNvfp4PackQuantized;
  } else if (format == "float-quantized") {
    config.method = Method::kFloatQuantized;
  } else {
    return group.Fail(absl::UnimplementedError(absl::StrCat(
        group.source(), ": quantization_config.format is '", format.substr(0, kMaxNameBytes),
        "', which is not supported; pack-quantized, ",
        "int-quantized, mxfp4-pack-quantized, nvfp4-pack-quantized and float-quantized are")));
  }
  if (group.Object("weights") == nullptr) group.Invalid("weights", "it is needed");
  ReadNested(group, "weights", prefix, [&](ConfigFields& fields) { ReadWeights(fields, config); });
  ReadNested(group, "input_activations", prefix,
             [&](ConfigFields& fields) { ReadInputs(fields, config); });
  group.RefuseUnlessOff("output_activations");
  RefuseUnknown(group);
}

}  // namespace

void ReadCompressedTensors(ConfigFields& fields, QuantizationConfig& config) {
  const std::string status = fields.String("quantization_status").value_or("compressed");
  if (status != "compressed") fields.Unsupported("quantization_status", "compressed is");
  for (const char* name : {"sparsity_config", "moe_sparsity_config", "transform_config"})
    fields.RefuseUnlessOff(name);
  if (!ReadKvCacheScheme(fields, config)) {
    fields.Unsupported("kv_cache_scheme", "num_bits 8 of type float is");
  }
  fields.Ignore("global_compression_ratio");
  fields.Ignore("version");
  const std::string format = fields.String("format").value_or("");
  const nlohmann::json* groups = fields.Object("config_groups");
  if (config.fp8_kv && (groups == nullptr || groups->empty())) return fields.Ignore("ignore");
  if (groups == nullptr || groups->size() != 1 || !groups->begin()->is_object()) {
    return fields.Unsupported("config_groups", "one group is");
  }
  const std::string prefix = absl::StrCat("quantization_config.config_groups.",
                                          groups->begin().key().substr(0, kMaxNameBytes), ".");
  ConfigFields group(*groups->begin(), fields.source(), prefix);
  config.modules = std::make_shared<ModuleFilter>(
      ModuleFilter{ModulesOf(group, "targets"), ModulesOf(fields, "ignore")});
  ReadGroup(group, prefix, format, config);
  if (!group.status().ok()) fields.Fail(group.status());
}

}  // namespace bulkhead
