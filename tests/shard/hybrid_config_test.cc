// What published configs of linear attention say, and what they must not; whose heads are whose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"
#include "tests/shard/strict_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Next() {
  return json::parse(R"({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
      "decoder_sparse_step": 1, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 5120, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
      "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
      "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48,
      "num_key_value_heads": 2, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6,
      "rope_theta": 10000000, "shared_expert_intermediate_size": 512, "vocab_size": 151936})");
}

TEST(HybridConfigTest, ThreeLayersOfFourKeepStates) {
  const auto parsed = ParseStrictly(Next());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const ModelConfig& config = parsed->model;
  EXPECT_TRUE(config.UsesDelta(0) && config.UsesDelta(2) && config.UsesDelta(46));
  EXPECT_FALSE(config.UsesDelta(3) || config.UsesDelta(47));
  EXPECT_TRUE(config.attention_gate && config.qk_norm);
  EXPECT_EQ(config.norm_weight_offset, 1);
  EXPECT_EQ(RotaryDim(config.rope, config.head_dim), 64);
}

TEST(HybridConfigTest, LayerTypesSayItLayerByLayer) {
  json config = Next();
  config["num_hidden_layers"] = 3;
  config["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
  const auto parsed = ParseStrictly(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->model.delta.layer_uses_delta, (std::vector<bool>{false, true, false}));
}

TEST(HybridConfigTest, ImpossibleFieldsAreRefusedByName) {
  struct Case {
    const char* field;
    json value;
  };
  for (const Case& c : {Case{"linear_num_value_heads", 24},
                        {"linear_num_value_heads", 0},
                        {"linear_num_key_heads", 100000},
                        {"linear_key_head_dim", 0},
                        {"linear_value_head_dim", 4096},
                        {"linear_conv_kernel_dim", 1},
                        {"linear_conv_kernel_dim", 17},
                        {"full_attention_interval", 0},
                        {"attention_bias", true},
                        {"layer_types", json::array({"linear_attention"})},
                        {"layer_types", json(std::vector<std::string>(48, "linear_attention"))},
                        {"layer_types", json(std::vector<std::string>(48, "sliding_attention"))}}) {
    json config = Next();
    config[c.field] = c.value;
    const absl::Status status = ParseStrictly(config).status();
    EXPECT_THAT(status.message(), HasSubstr(c.field)) << c.value;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  }
}

// A convolution's vector of a part is read at once.
TEST(HybridConfigTest, HeadsTimesTheirDimTimesTapsAreBounded) {
  for (const char* kind : {"key", "value"}) {
    json config = Next();
    config["linear_num_key_heads"] = config["linear_num_value_heads"] = 512;
    config[absl::StrCat("linear_", kind, "_head_dim")] = 256;
    config["linear_conv_kernel_dim"] = 8;
    EXPECT_TRUE(ParseStrictly(config).ok()) << ParseStrictly(config).status();
    config["linear_conv_kernel_dim"] = 9;
    EXPECT_THAT(ParseStrictly(config).status().message(),
                HasSubstr(absl::StrCat("linear_num_", kind,
                                       "_heads is 512; it must be at most 455 "
                                       "for heads of 256 and linear_conv_kernel_dim 9")));
  }
}

// Each has rows of its own, which plans and loads are walked by.
TEST(HybridConfigTest, HeadsOfAllLayersAreBounded) {
  json config = Next();
  config["num_hidden_layers"] = 64;
  config["linear_num_value_heads"] = 1024;
  EXPECT_TRUE(ParseStrictly(config).ok()) << ParseStrictly(config).status();
  config["num_hidden_layers"] = 65;
  EXPECT_THAT(ParseStrictly(config).status().message(),
              HasSubstr("linear_num_value_heads is 1024; over all 65 layers there may be 65536"));
}

// Ranks divide value heads, and have the key heads that those read.
TEST(HybridConfigTest, RanksDivideTheValueHeads) {
  json json_config = Next();
  json_config["linear_num_key_heads"] = 2;
  json_config["linear_num_value_heads"] = 6;
  const auto parsed = ParseStrictly(json_config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (const int size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(size);
    const auto plan = ShardPlan::Create(parsed->model, size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int64_t next = 0;
    for (int rank = 0; rank < size; ++rank) {
      const RankShard& shard = plan->rank(rank);
      EXPECT_EQ(shard.delta_values.begin, next);
      next = shard.delta_values.end;
      ASSERT_EQ(static_cast<int64_t>(shard.value_to_key.size()), shard.delta_values.size());
      for (int64_t i = 0; i < shard.delta_values.size(); ++i) {
        EXPECT_EQ(shard.delta_keys.begin + shard.value_to_key[i],
                  (shard.delta_values.begin + i) / 3);
      }
    }
    EXPECT_EQ(next, 6);
  }
}

// Of the fused projections of Qwen3-Next every row is taken once, by whoever has its head.
TEST(HybridConfigTest, FusedProjectionsAreTakenWholeByAllRanks) {
  const auto parsed = ParseStrictly(Next());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (const int size : {1, 4, 16}) {
    const auto plan = ShardPlan::Create(parsed->model, size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<int> taken(16 * (2 * 128 + 4 * 128), 0);
    for (int rank = 0; rank < size; ++rank) {
      for (const TensorRow& row : LayerTensors(parsed->model, 0)) {
        if (row.name != "linear_attn.in_proj_qkvz") continue;
        const TensorSlice slice = SliceOf(row, plan->rank(rank));
        for (int64_t i = slice.rows.begin; i < slice.rows.end; ++i) ++taken[row.file_begin + i];
      }
    }
    EXPECT_EQ(taken, std::vector<int>(taken.size(), 1)) << size;
  }
}

TEST(HybridConfigTest, ExpertsShareTensorsInAMultimodalCheckpoint) {
  json text = Next();
  text.erase("architectures");
  text["model_type"] = "qwen3_5_moe_text";
  text.erase("intermediate_size");
  text["mtp_num_hidden_layers"] = 1;
  text["rope_parameters"] = {{"mrope_interleaved", true},
                             {"mrope_section", {11, 11, 10}},
                             {"rope_theta", 10000000},
                             {"rope_type", "default"}};
  const auto parsed = ParseStrictly({{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                                     {"model_type", "qwen3_5_moe"},
                                     {"text_config", text}});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> names;
  for (const TensorRow& row : LayerTensors(parsed->model, 3)) names.push_back(row.Name());
  EXPECT_THAT(names, testing::Contains("model.language_model.layers.3.mlp.experts.gate_up_proj"));
  EXPECT_THAT(names, testing::Contains("model.language_model.layers.3.self_attn.q_proj.weight"));
}

}  // namespace
}  // namespace bulkhead
