#include "shard/quantization_config.h"

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/module_filter.h"
#include "shard/tensor_row.h"
#include "shard/weight_formats.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

absl::StatusOr<ParsedConfig> Parse(const json& quantization) {
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", 64},
                       {"intermediate_size", 128},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 100},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-5},
                       {"quantization_config", quantization}};
  return ParseModelConfig(config.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
}

// Of the layer, with this end.
std::vector<std::string> RowNames(const ModelConfig& config, const std::string& end) {
  std::vector<std::string> names;
  for (const TensorRow& row : LayerTensors(config, 0)) {
    if (row.Name().ends_with(end)) names.push_back(row.Name());
  }
  return names;
}

json Awq() {
  return {{"quant_method", "awq"}, {"bits", 4},         {"group_size", 128},
          {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
}

json Gptq() {
  return {{"quant_method", "gptq"}, {"bits", 4},          {"group_size", 64},
          {"desc_act", true},       {"sym", false},       {"checkpoint_format", "gptq"},
          {"lm_head", false},       {"damp_percent", 0.1}};
}

// compressed-tensors, with these of the weights.
json Packed(const std::string& format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"ignore", {"lm_head", "re:.*mlp[.]gate$", "model.layers.0.self_attn.q_proj"}},
          {"kv_cache_scheme", nullptr},
          {"version", "0.9"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}}}}}};
}
json FourBits() {
  return {{"num_bits", 4},     {"type", "int"},       {"symmetric", true}, {"strategy", "group"},
          {"group_size", 128}, {"actorder", nullptr}, {"dynamic", false},  {"observer", "minmax"}};
}
json EightBits() {
  return {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
}
json Fp8(const char* strategy) {
  return {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", strategy}};
}
json Mxfp4() {
  return {{"num_bits", 4},       {"type", "float"},  {"symmetric", true},
          {"strategy", "group"}, {"group_size", 32}, {"scale_dtype", "torch.uint8"}};
}
json Nvfp4() {
  return {{"num_bits", 4},     {"type", "float"},
          {"symmetric", true}, {"strategy", "tensor_group"},
          {"group_size", 16},  {"scale_dtype", "torch.float8_e4m3fn"}};
}

TEST(QuantizationConfigTest, CompressedTensorsAreRead) {
  struct Case {
    json quantization;
    QuantizationConfig::Method method;
    int bits;
    int group_size;
    WeightFormats formats;
  };
  using Method = QuantizationConfig::Method;
  const auto formats = [](WeightFormat format, int group_size, ScaleFormat scales) {
    WeightFormats held = WeightFormats::Of(DType::kBF16);
    held.layers = format;
    held.group_size = group_size;
    held.scales = scales;
    return held;
  };
  json wide = FourBits();
  wide["group_size"] = 1024;
  for (const Case& c : {Case{Packed("pack-quantized", FourBits()), Method::kPackQuantized, 4, 128,
                             formats(WeightFormat::kInt4, 128, ScaleFormat::kBF16)},
                        Case{Packed("pack-quantized", wide), Method::kPackQuantized, 4, 1024,
                             formats(WeightFormat::kInt4, 128, ScaleFormat::kBF16)},
                        Case{Packed("int-quantized", EightBits()), Method::kIntQuantized, 8, 0,
                             formats(WeightFormat::kInt8, 128, ScaleFormat::kBF16)},
                        Case{Packed("float-quantized", Fp8("channel")), Method::kFloatQuantized, 8,
                             0, formats(WeightFormat::kFp8, 128, ScaleFormat::kF32)},
                        Case{Packed("float-quantized", Fp8("tensor")), Method::kFloatQuantized, 8,
                             0, formats(WeightFormat::kFp8, 128, ScaleFormat::kF32)},
                        Case{Packed("mxfp4-pack-quantized", Mxfp4()), Method::kMxfp4PackQuantized,
                             4, 32, formats(WeightFormat::kMxfp4, 32, ScaleFormat::kE8M0)},
                        Case{Packed("nvfp4-pack-quantized", Nvfp4()), Method::kNvfp4PackQuantized,
                             4, 16, formats(WeightFormat::kNvfp4, 16, ScaleFormat::kE4M3)}}) {
    SCOPED_TRACE(c.quantization.dump());
    const auto config = Parse(c.quantization);
    ASSERT_TRUE(config.ok()) << config.status();
    const QuantizationConfig& quantization = config->model.quantization;
    EXPECT_EQ(quantization.method, c.method);
    EXPECT_EQ(quantization.bits, c.bits);
    EXPECT_EQ(quantization.group_size, c.group_size);
    EXPECT_EQ(WeightFormats::StoredBy(config->model, DType::kBF16), c.formats);
    EXPECT_TRUE(config->warnings.empty());
    ASSERT_NE(quantization.modules, nullptr);
    EXPECT_TRUE(quantization.modules->Selects("model.layers.0.mlp.gate_proj"));
    EXPECT_FALSE(quantization.modules->Selects("model.layers.7.mlp.gate"));
    EXPECT_FALSE(quantization.modules->Selects("lm_head"));
    // What is ignored is held in numbers, beside what is not.
    for (const TensorRow& row : LayerTensors(config->model, 0)) {
      if (row.is_vector()) continue;
      EXPECT_EQ(row.held_as, row.Module() == "model.layers.0.self_attn.q_proj"
                                 ? HeldAs::kKeptMatrix
                                 : HeldAs::kLayerMatrix)
          << row.Name();
    }
  }
}

TEST(QuantizationConfigTest, OtherCompressedTensorsAreRefusedByName) {
  struct Case {
    const char* pointer;
    json value;
    const char* names;
    json base = Packed("pack-quantized", FourBits());
  };
  const char* const group = "/config_groups/group_0";
  const auto in_group = [&](const char* field) { return std::string(group) + field; };
  for (const Case& c :
       {Case{"/weights/num_bits", 3, "weights.num_bits is 3"},
        Case{"/weights/strategy", "tensor", "strategy"},
        Case{"/weights/strategy", "block", "strategy"},
        Case{"/weights/group_size", 48, "group_size"},
        Case{"/weights/actorder", "sideways", "actorder"}, Case{"/weights/type", "float", "type"},
        Case{"/weights/dynamic", true, "dynamic"},
        Case{"/weights/rotation", "hadamard", "rotation"},
        Case{"/weights/symmetric", false, "symmetric", Packed("int-quantized", EightBits())},
        Case{"/weights/num_bits", 4, "num_bits", Packed("int-quantized", EightBits())},
        Case{"/weights/group_size", 16, "group_size", Packed("mxfp4-pack-quantized", Mxfp4())},
        Case{"/weights/strategy", "group", "strategy", Packed("float-quantized", Fp8("tensor"))},
        Case{"/weights/group_size", 32, "group_size", Packed("nvfp4-pack-quantized", Nvfp4())},
        Case{"/weights/strategy", "group", "strategy", Packed("nvfp4-pack-quantized", Nvfp4())},
        Case{"/input_activations",
             {{"num_bits", 8}, {"type", "float"}},
             "input_activations.num_bits",
             Packed("nvfp4-pack-quantized", Nvfp4())},
        Case{"/format", "marlin-24", "marlin-24"},
        Case{"/output_activations", {{"num_bits", 8}}, "output_activations"},
        Case{"/input_activations", {{"num_bits", 8}, {"type", "float"}}, "input_activations.type"},
        Case{"/input_activations",
             {{"num_bits", 8}, {"type", "int"}, {"dynamic", false}},
             "input_activations.dynamic"}}) {
    SCOPED_TRACE(c.pointer);
    json quantization = c.base;
    quantization[json::json_pointer(in_group(c.pointer))] = c.value;
    const absl::Status status = Parse(quantization).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.names));
  }
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"kv_cache_scheme", {{"num_bits", 8}}},
        {"quantization_status", "frozen"},
        {"sparsity_config", {{"format", "sparse-24"}}},
        {"config_groups", {{"a", {{"x", 1}}}, {"b", {{"x", 1}}}}},
        {"config_groups", {{"a", 7}}},
        {"config_groups", nullptr}}) {
    json quantization = Packed("pack-quantized", FourBits());
    quantization[field] = value;
    EXPECT_THAT(std::string(Parse(quantization).status().message()), HasSubstr(field));
  }
  json pattern = Packed("pack-quantized", FourBits());
  pattern["ignore"] = {"re:(("};
  EXPECT_THAT(std::string(Parse(pattern).status().message()), HasSubstr("ignore"));
}

TEST(QuantizationConfigTest, Fp8InBlocksIsReadAndOtherwiseRefused) {
  const json blocks = {{"quant_method", "fp8"},
                       {"fmt", "e4m3"},
                       {"activation_scheme", "dynamic"},
                       {"weight_block_size", {128, 128}},
                       {"modules_to_not_convert", {"model.layers.0.mlp.gate", "lm_head"}}};
  const auto config = Parse(blocks);
  ASSERT_TRUE(config.ok()) << config.status();
  const QuantizationConfig& quantization = config->model.quantization;
  EXPECT_EQ(quantization.method, QuantizationConfig::Method::kFp8);
  EXPECT_EQ(quantization.group_outputs, 128);
  EXPECT_EQ(WeightFormats::StoredBy(config->model, DType::kBF16).layers, WeightFormat::kFp8);
  EXPECT_TRUE(quantization.modules->Selects("model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(quantization.modules->Selects("model.layers.0.mlp.gate"));
  EXPECT_FALSE(quantization.modules->Selects("lm_head"));
  json named_otherwise = blocks;
  named_otherwise["fmt"] = "float8_e4m3fn";
  EXPECT_TRUE(Parse(named_otherwise).ok());
  for (const auto& [field, value] : {std::pair<const char*, json>{"weight_block_size", {64, 128}},
                                     {"weight_block_size", nullptr},
                                     {"fmt", "e5m2"},
                                     {"activation_scheme", "static"},
                                     {"rotation", 1}}) {
    json other = blocks;
    other[field] = value;
    EXPECT_THAT(std::string(Parse(other).status().message()), HasSubstr(field));
  }
}

TEST(QuantizationConfigTest, InputsOfNvfp4AreNotQuantised) {
  json quantization = Packed("nvfp4-pack-quantized", Nvfp4());
  quantization["config_groups"]["group_0"]["input_activations"] = {
      {"num_bits", 4}, {"type", "float"}, {"dynamic", "local"}, {"strategy", "tensor_group"}};
  const auto config = Parse(quantization);
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(QuantizationConfigTest, AnFp8SchemeOfTheCacheIsFollowedAndOthersAreNot) {
  const json fp8 = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}};
  json packed = Packed("pack-quantized", FourBits());
  EXPECT_FALSE(Parse(packed)->model.quantization.fp8_kv);
  packed["kv_cache_scheme"] = fp8;
  const auto with_weights = Parse(packed);
  ASSERT_TRUE(with_weights.ok()) << with_weights.status();
  EXPECT_TRUE(with_weights->model.quantization.fp8_kv);
  EXPECT_THAT(with_weights->warnings, testing::Not(testing::Contains(HasSubstr("kv_cache"))));
  EXPECT_EQ(RowNames(with_weights->model, "_scale"),
            (std::vector<std::string>{"model.layers.0.self_attn.k_scale",
                                      "model.layers.0.self_attn.v_scale"}));
  packed["config_groups"] = json::object();  // the cache alone
  packed["format"] = "dense";
  const auto alone = Parse(packed);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->model.quantization.fp8_kv);
  EXPECT_EQ(alone->model.quantization.method, QuantizationConfig::Method::kNone);
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"num_bits", 4}, {"type", "int"}, {"symmetric", false}}) {
    packed["kv_cache_scheme"] = fp8;
    packed["kv_cache_scheme"][field] = value;
    EXPECT_THAT(std::string(Parse(packed).status().message()), HasSubstr("kv_cache_scheme"));
  }
  for (const auto& [field, value, applied] :
       {std::tuple<const char*, json, bool>{"kv_cache_scheme", fp8, true},
        {"kv_cache_scheme", {{"num_bits", 4}, {"type", "float"}}, false},
        {"kv_cache_quant_algo", "FP8", true},
        {"kv_cache_quant_algo", "NVFP4", false}}) {
    const auto modelopt =
        Parse({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {field, value}});
    ASSERT_TRUE(modelopt.ok()) << modelopt.status();
    EXPECT_EQ(modelopt->model.quantization.fp8_kv, applied);
    EXPECT_THAT(modelopt->warnings, testing::Contains(HasSubstr(field)).Times(applied ? 0 : 1));
  }
}

TEST(QuantizationConfigTest, ModelOptIsReadInNvfp4) {
  const json nvfp4 = {
      {"quant_method", "modelopt"},
      {"quant_algo", "NVFP4"},
      {"ignore", {"lm_head", "model.layers.0.self_attn*", "model.layers.?.mlp.up_proj"}},
      {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}},
      {"producer", {{"name", "modelopt"}}},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}}}};
  const auto config = Parse(nvfp4);
  ASSERT_TRUE(config.ok()) << config.status();
  const QuantizationConfig& quantization = config->model.quantization;
  EXPECT_EQ(quantization.method, QuantizationConfig::Method::kModelOptNvfp4);
  EXPECT_TRUE(quantization.fp8_kv);
  const WeightFormats formats = WeightFormats::StoredBy(config->model, DType::kBF16);
  EXPECT_EQ(formats.layers, WeightFormat::kNvfp4);
  EXPECT_EQ(formats.group_size, 16);
  EXPECT_EQ(formats.scales, ScaleFormat::kE4M3);
  EXPECT_FALSE(quantization.modules->Selects("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(quantization.modules->Selects("model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(quantization.modules->Selects("model.layers.33.mlp.up_proj"));
  EXPECT_TRUE(quantization.modules->Selects("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(quantization.modules->Selects("lm_head"));
  for (const auto& [pointer, value] : {std::pair<const char*, json>{"/quant_algo", "W4A8_AWQ"},
                                       {"/group_size", 32},
                                       {"/config_groups/group_0/weights/group_size", 32},
                                       {"/config_groups/group_0/weights/num_bits", 8},
                                       {"/config_groups/group_1", {{"weights", json::object()}}},
                                       {"/rotation", 1}}) {
    json other = nvfp4;
    other[json::json_pointer(pointer)] = value;
    const absl::Status status = Parse(other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << pointer << ": " << status;
  }
}

TEST(QuantizationConfigTest, ModelOptIsReadInFp8WithAScaleOfEachWeight) {
  json fp8 = {{"quant_method", "modelopt"},
              {"quant_algo", "FP8"},
              {"kv_cache_quant_algo", "FP8"},
              {"exclude_modules", {"lm_head"}}};
  const auto config = Parse(fp8);
  ASSERT_TRUE(config.ok()) << config.status();
  const QuantizationConfig& quantization = config->model.quantization;
  EXPECT_EQ(quantization.method, QuantizationConfig::Method::kFloatQuantized);
  EXPECT_EQ(quantization.group_outputs, 0);
  EXPECT_TRUE(quantization.fp8_kv);
  EXPECT_FALSE(quantization.modules->Selects("lm_head"));
  EXPECT_EQ(WeightFormats::StoredBy(config->model, DType::kBF16).layers, WeightFormat::kFp8);
  fp8["group_size"] = 64;
  EXPECT_THAT(std::string(Parse(fp8).status().message()), HasSubstr("group_size"));
}

TEST(QuantizationConfigTest, OneGroupOfAllInputsHasNoOrder) {
  for (json quantization : {Awq(), Gptq()}) {
    quantization["group_size"] = -1;
    const auto config = Parse(quantization);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->model.quantization.group_size, 0);
    EXPECT_FALSE(config->model.quantization.act_order);
    EXPECT_EQ(WeightFormats::StoredBy(config->model, DType::kF16).group_size, 128);
  }
}

TEST(QuantizationConfigTest, APatternThatTakesTooLongMatchesNothing) {
  ModuleList modules;
  ASSERT_TRUE(modules.AddPattern("(a+a+)+b"));
  EXPECT_FALSE(modules.Contains(std::string(60, 'a')));
  EXPECT_TRUE(modules.Contains("aaab.c"));
  EXPECT_FALSE(modules.Contains("xaaab"));  // as re.match: from the begin
}

TEST(QuantizationConfigTest, AwqAndGptqAreRead) {
  const auto awq = Parse(Awq());
  ASSERT_TRUE(awq.ok()) << awq.status();
  EXPECT_EQ(awq->model.quantization,
            (QuantizationConfig{QuantizationConfig::Method::kAwq, 128, false}));
  EXPECT_TRUE(awq->warnings.empty());
  const auto gptq = Parse(Gptq());
  ASSERT_TRUE(gptq.ok()) << gptq.status();
  EXPECT_EQ(gptq->model.quantization,
            (QuantizationConfig{QuantizationConfig::Method::kGptq, 64, true}));
  json eight = Gptq();
  eight["bits"] = 8;
  eight["sym"] = true;
  eight["checkpoint_format"] = "gptq_v2";
  const auto gptq8 = Parse(eight);
  ASSERT_TRUE(gptq8.ok()) << gptq8.status();
  EXPECT_EQ(gptq8->model.quantization.bits, 8);
  EXPECT_TRUE(gptq8->model.quantization.zeros_as_stored);
  EXPECT_FALSE(gptq->model.quantization.zeros_as_stored);
  EXPECT_EQ(WeightFormats::StoredBy(gptq8->model, DType::kF16).layers, WeightFormat::kInt8);
  eight["sym"] = false;
  EXPECT_THAT(std::string(Parse(eight).status().message()), HasSubstr("sym"));
  EXPECT_EQ(Parse(nullptr)->model.quantization.method, QuantizationConfig::Method::kNone);
}

TEST(QuantizationConfigTest, WhateverElseThereIsIsRefusedByName) {
  struct Case {
    const char* field;
    json value;
    json base;
  };
  for (const Case& c :
       {Case{"quant_method", "bitsandbytes", Awq()}, Case{"quant_method", nullptr, Awq()},
        Case{"bits", 3, Gptq()}, Case{"bits", 8, Awq()}, Case{"group_size", 256, Gptq()},
        Case{"group_size", 16, Awq()}, Case{"version", "gemv", Awq()},
        Case{"zero_point", false, Awq()}, Case{"checkpoint_format", "marlin", Gptq()},
        Case{"lm_head", true, Gptq()}, Case{"dynamic", {{"a", 1}}, Gptq()},
        Case{"rotation", "hadamard", Gptq()}}) {
    json quantization = c.base;
    quantization[c.field] = c.value;
    const absl::Status status = Parse(quantization).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << c.field << ": " << status;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
  }
  json without = Gptq();
  without.erase("bits");
  EXPECT_THAT(std::string(Parse(without).status().message()), HasSubstr("bits"));
  EXPECT_FALSE(Parse(7).ok());
}

}  // namespace
}  // namespace bulkhead
