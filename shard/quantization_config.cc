#include "shard/quantization_config.h"

#include <algorithm>

namespace bulkhead {
namespace {

constexpr int kMaxGroupSize = 1 << 20;

// What files carry besides, and what does not change how weights are read.
constexpr const char* kHarmless[] = {"backend",
                                     "block_name_to_quantize",
                                     "cache_block_outputs",
                                     "damp_percent",
                                     "dataset",
                                     "do_fuse",
                                     "exllama_config",
                                     "fuse_max_seq_len",
                                     "max_input_length",
                                     "meta",
                                     "model_file_base_name",
                                     "model_name_or_path",
                                     "model_seqlen",
                                     "modules_to_fuse",
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

void ReadAwq(ConfigFields& fields) {
  const std::string version = fields.String("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM") fields.Unsupported("version", "gemm is");
  if (!fields.Bool("zero_point").value_or(true)) fields.Unsupported("zero_point", "true is");
  const auto kept = fields.Strings("modules_to_not_convert").value_or(std::vector<std::string>());
  if (std::any_of(kept.begin(), kept.end(), [](const auto& name) { return name != "lm_head"; })) {
    fields.Unsupported("modules_to_not_convert", "lm_head alone is");
  }
}

void ReadGptq(ConfigFields& fields, QuantizationConfig& config) {
  config.act_order = fields.Bool("desc_act").value_or(false);
  const std::string format = fields.String("checkpoint_format").value_or("gptq");
  if (format != "gptq") fields.Unsupported("checkpoint_format", "gptq is");
  if (fields.Bool("lm_head").value_or(false)) fields.Unsupported("lm_head", "false is");
  fields.RefuseUnlessOff("dynamic");
}

}  // namespace

QuantizationConfig ReadQuantizationConfig(ConfigFields& outer) {
  QuantizationConfig config;
  const nlohmann::json* object = outer.Object("quantization_config");
  if (object == nullptr || object->empty()) return config;
  ConfigFields fields(*object, outer.source(), "quantization_config.");
  const std::string method = fields.String("quant_method").value_or("");
  if (method == "awq") {
    config.method = QuantizationConfig::Method::kAwq;
    ReadAwq(fields);
  } else if (method == "gptq") {
    config.method = QuantizationConfig::Method::kGptq;
    ReadGptq(fields, config);
  } else {
    fields.Unsupported("quant_method", "awq and gptq are");
  }
  if (fields.status().ok() && fields.RequiredInt("bits", 1, 64) != 4) {
    fields.Unsupported("bits", "4 is");
  }
  config.group_size = fields.RequiredInt("group_size", -1, kMaxGroupSize);
  if (fields.status().ok() && config.group_size != 32 && config.group_size != 64 &&
      config.group_size != 128) {
    fields.Unsupported("group_size", "32, 64 and 128 are");
  }
  for (const char* name : kHarmless) fields.Ignore(name);
  // A field that nobody knows may change what the numbers mean.
  const std::vector<std::string> unknown = fields.UnknownNames();
  if (fields.status().ok() && !unknown.empty()) {
    fields.Fail(absl::UnimplementedError(outer.source() + ": " + unknown.front() +
                                         " is not known, and may change what the weights mean"));
  }
  if (!fields.status().ok()) outer.Fail(fields.status());
  return config;
}

}  // namespace bulkhead
