#include "shard/quantization_config.h"

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"

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

json Awq() {
  return {{"quant_method", "awq"}, {"bits", 4},         {"group_size", 128},
          {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
}

json Gptq() {
  return {{"quant_method", "gptq"}, {"bits", 4},          {"group_size", 64},
          {"desc_act", true},       {"sym", false},       {"checkpoint_format", "gptq"},
          {"lm_head", false},       {"damp_percent", 0.1}};
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
        Case{"bits", 8, Gptq()}, Case{"group_size", -1, Gptq()}, Case{"group_size", 16, Awq()},
        Case{"version", "gemv", Awq()}, Case{"zero_point", false, Awq()},
        Case{"modules_to_not_convert", json::array({"mlp.down_proj"}), Awq()},
        Case{"checkpoint_format", "gptq_v2", Gptq()}, Case{"lm_head", true, Gptq()},
        Case{"dynamic", {{"a", 1}}, Gptq()}, Case{"rotation", "hadamard", Gptq()}}) {
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
