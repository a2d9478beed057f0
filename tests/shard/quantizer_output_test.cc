// What quantisers write today: fields that say nothing new, zeros that borrow, scales that are no
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "shard/module_filter.h"
#include "shard/quantized_tensors.h"
#include "shard/tensor_index.h"
#include "shard/tensor_row.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The config of a fixture with these fields of its quantization_config laid over.
absl::StatusOr<ParsedConfig> Parse(const std::string& fixture, const json& more) {
  json config =
      json::parse(ReadFile(std::string(BH_TEST_DATA "/quantised/") + fixture + "/config.json"));
  config["quantization_config"].update(more);
  return ParseModelConfig(config.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
}

absl::StatusOr<ParsedConfig> ParseFp8(const json& quantization) {
  json config = json::parse(ReadFile(BH_TEST_DATA "/quantised/gptq/config.json"));
  config["quantization_config"] = quantization;
  return ParseModelConfig(config.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
}

TEST(QuantizerOutputTest, FieldsOfTodaysToolsAreKnown) {
  const json packing = {{"act_group_aware", true}, {"pack_dtype", "int32"}, {"dynamic", nullptr},
                        {"any_name", nullptr},     {"lm_head", false},      {"adapter", nullptr}};
  for (const auto& [fixture, fields] :
       {std::pair<std::string, json>{"gptq", {{"format", "gptq"}, {"method", "gptq"}}},
        {"awq", {{"format", "gemm"}, {"method", "awq"}, {"desc_act", false}}},
        {"ct_int4_g32_asym", {{"moe_sparsity_config", nullptr}}}}) {
    json more = fields;
    if (fixture != "ct_int4_g32_asym") more.update(packing);
    const auto parsed = Parse(fixture, more);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
  }
  const json fp8 = {{"quant_method", "fp8"},
                    {"weight_block_size", {128, 128}},
                    {"expert_dtype", "fp8"},
                    {"modules_to_convert", nullptr}};
  EXPECT_TRUE(ParseFp8(fp8).ok()) << ParseFp8(fp8).status();
  json newer = {{"format", "gptq_v2"}, {"checkpoint_format", nullptr}};
  EXPECT_TRUE(Parse("gptq", newer)->model.quantization.zeros_as_stored);
}

TEST(QuantizerOutputTest, WhatWouldChangeTheWeightsIsRefused) {
  for (const auto& [fixture, field, value] :
       {std::tuple<std::string, std::string, json>{"gptq", "pack_dtype", "int64"},
        {"gptq", "method", "qqq"},
        {"gptq", "adapter", {{"name", "lora"}}},
        {"awq", "format", "gemv"},
        {"awq", "desc_act", true},
        {"ct_int4_g32_asym", "moe_sparsity_config", {{"a", 1}}}}) {
    const absl::Status status = Parse(fixture, {{field, value}}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(field)) << status;
  }
  for (const auto& [field, value] :
       {std::pair<std::string, json>{"expert_dtype", "fp4"}, {"modules_to_convert", {"mlp"}}}) {
    const absl::Status status =
        ParseFp8({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {field, value}})
            .status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(field)) << status;
  }
  const json at_run_time = {{"num_bits", 8}, {"type", "float"}, {"dynamic", true}};
  EXPECT_THAT(
      std::string(Parse("ct_int4_g32_asym", {{"kv_cache_scheme", at_run_time}}).status().message()),
      HasSubstr("kv_cache_scheme.dynamic"));
  EXPECT_THAT(
      std::string(
          Parse("gptq", {{"format", "marlin"}, {"checkpoint_format", nullptr}}).status().message()),
      HasSubstr("quantization_config.format is \"marlin\""));
  EXPECT_THAT(
      std::string(
          Parse("gptq", {{"checkpoint_format", "gptq"}, {"format", "gptq_v2"}}).status().message()),
      HasSubstr("it contradicts checkpoint_format, gptq"));
}

// The first q_proj of a fixture, of which `change` has changed the tensors.
template <typename Change>
absl::StatusOr<std::vector<uint8_t>> ZerosOf(const std::string& fixture, const Change& change) {
  const std::string dir = std::string(BH_TEST_DATA "/quantised/") + fixture;
  const ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  const std::string stem = "model.layers.0.self_attn.q_proj.";
  std::map<std::string, RawTensor> tensors = ReadRawCheckpoint(dir);
  change(tensors, stem);
  std::vector<RawTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back(tensor);
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(list));
  const TensorIndex index = *TensorIndex::Open(folder.path());
  const auto found = FindQuantized(index, RowOf(config, stem + "weight"), config);
  if (!found.ok()) return found.status();
  std::vector<std::byte> staging(found->StagingBytes({0, 32}, 8));
  const auto read = found->ReadRows({0, 8}, {0, 32}, staging.data());
  if (!read.ok()) return read.status();
  return std::vector<uint8_t>(read->zeros, read->zeros + 8);
}

TEST(QuantizerOutputTest, AZeroOf0BorrowsFromTheNextOneOfItsWord) {
  const std::vector<uint8_t> want = {0, 0, 7, 15, 0, 8, 1, 0};
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint32_t{want[i]} << (4 * i);
  word -= 0x11111111;
  const auto zeros = ZerosOf("gptq", [&](auto& tensors, const std::string& stem) {
    std::memcpy(tensors.at(stem + "qzeros").bytes.data(), &word, 4);
  });
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_EQ(*zeros, want);
}

// Whether the fixture's checkpoint with a bias of `value` at down_proj's output 3 is that of its
// config.
absl::Status WithBias(float value, int64_t outputs) {
  const std::string dir = BH_TEST_DATA "/quantised/gptq";
  const ModelConfig config = ReadModelConfig(dir, UnknownFields::kWarn, AllFamilySpecs())->model;
  std::vector<RawTensor> list;
  for (const auto& [name, tensor] : ReadRawCheckpoint(dir)) list.push_back(tensor);
  std::vector<float> bias(outputs);
  bias[3] = value;
  list.push_back({"model.layers.0.mlp.down_proj.bias",
                  "F32",
                  {outputs},
                  std::string(reinterpret_cast<const char*>(bias.data()), outputs * 4)});
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(list));
  return TensorIndex::Open(folder.path())->CheckAgainst(config);
}

TEST(QuantizerOutputTest, AZeroBiasOfAModuleWithoutOneIsPassedOver) {
  const int64_t outputs =
      ReadModelConfig(BH_TEST_DATA "/quantised/gptq", UnknownFields::kWarn, AllFamilySpecs())
          ->model.hidden_size;
  EXPECT_TRUE(WithBias(0, outputs).ok()) << WithBias(0, outputs);
  for (const absl::Status& status : {WithBias(1, outputs), WithBias(0, outputs + 1)}) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("down_proj.bias' has no place in a LlamaForCausalLM"));
  }
}

TEST(QuantizerOutputTest, AwqLeavesOutModulesWhoseNamesHaveAPart) {
  const json names = {"visual", "layers.0.mlp.down", "self_attn.q", "a\\E.*"};
  const auto config = Parse("awq", {{"modules_to_not_convert", names}});
  ASSERT_TRUE(config.ok()) << config.status();
  const ModuleFilter& modules = *config->model.quantization.modules;
  EXPECT_FALSE(modules.Selects("model.layers.0.mlp.down_proj"));
  EXPECT_TRUE(modules.Selects("model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(modules.Selects("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(modules.Selects("model.layers.1.self_attn.k_proj"));
  EXPECT_TRUE(modules.Selects("model.layers.1.mlp.gate_proj"));  // "." is no pattern
}

// Experts that share a parameter are no Linear.
TEST(QuantizerOutputTest, LinearsAreNotExpertsThatShareATensor) {
  json config = json::parse(ReadFile(BH_TEST_DATA "/models/granitemoe_bf16/config.json"));
  const auto held_as = [&](const char* target) {
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "float-quantized"},
                                     {"config_groups",
                                      {{"group_0",
                                        {{"targets", {target}},
                                         {"weights",
                                          {{"num_bits", 8},
                                           {"type", "float"},
                                           {"symmetric", true},
                                           {"strategy", "channel"}}}}}}}};
    const auto parsed = ParseModelConfig(config.dump(), "", UnknownFields::kWarn, AllFamilySpecs());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    std::map<std::string, HeldAs> held;
    for (const TensorRow& row : LayerTensors(parsed->model, 0)) held[row.Name()] = row.held_as;
    return std::pair(held.at("model.layers.0.self_attn.q_proj.weight"),
                     held.at("model.layers.0.block_sparse_moe.input_linear.weight"));
  };
  EXPECT_EQ(held_as("Linear"), std::pair(HeldAs::kLayerMatrix, HeldAs::kKeptMatrix));
  EXPECT_EQ(held_as("re:.*input_linear$"), std::pair(HeldAs::kKeptMatrix, HeldAs::kLayerMatrix));
}

TEST(QuantizerOutputTest, AScaleThatIsNoNumberIsRefusedWhereItIs) {
  for (const std::string fixture : {"gptq", "awq"}) {
    for (const uint16_t scale : {0x7C00, 0xFC00, 0x7E01}) {
      const auto zeros = ZerosOf(fixture, [&](auto& tensors, const std::string& stem) {
        std::memcpy(tensors.at(stem + "scales").bytes.data() + 3 * 2, &scale, 2);
      });
      EXPECT_EQ(zeros.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(zeros.status().message()),
                  HasSubstr("the scale of output 3 and group 0 is infinite or NaN"));
    }
  }
}

}  // namespace
}  // namespace bulkhead
