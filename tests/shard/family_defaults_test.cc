// What fields mean that a config leaves out: what the configuration classes of transformers say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/family_spec.h"
#include "shard/model_config.h"
#include "tests/shard/strict_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kMla[] = R"({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6,
    "moe_intermediate_size": 512})";
constexpr char kRouted[] =
    R"({"n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 512})";
constexpr char kLocal[] = R"({"num_local_experts": 64, "num_experts_per_tok": 6})";
constexpr char kQwen[] =
    R"({"num_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 512})";
constexpr char kShared[] = R"({"num_experts": 64, "num_experts_per_tok": 6,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})";

// Sizes alone, with the family's names.
json Silent(const char* model_type, const char* more = "{}") {
  json config = json::parse(R"({"hidden_size": 4096, "intermediate_size": 512,
      "num_hidden_layers": 8, "num_attention_heads": 32, "vocab_size": 262144})");
  config.update(json::parse(more));
  for (const FamilySpec* family : AllFamilySpecs()) {
    if (std::string(family->model_type) != model_type) continue;
    if (family->has_text_config()) config = {{"text_config", config}};
    config["architectures"] = {family->architecture};
  }
  config["model_type"] = model_type;
  return config;
}

struct Defaults {
  const char* model_type;
  double theta;
  int context;
  double norm_epsilon;
  const char* more = "{}";
  int window = 0;  // of layer 0, or its chunk
  bool is_tied = false;
  bool qkv_bias = false;
};

// As transformers 4.57 has them, where it has the class, and else as 5.24. Olmo3Config, whose theta
// of 1e4 in the former no checkpoint was trained with, as 5.24; CohereConfig (5e5 in 5.24) as 4.57.
constexpr Defaults kDefaults[] = {{"cohere", 1e4, 8192, 1e-5, "{}", 0, true},
                                  {"cohere2", 1e4, 8192, 1e-5, "{}", 4096, true},
                                  {"deepseek_v2", 1e4, 2048, 1e-6, kMla},
                                  {"deepseek_v3", 1e4, 4096, 1e-6, kMla},
                                  {"exaone4", 1e4, 2048, 1e-5, "{}", 4096},
                                  {"gemma", 1e4, 8192, 1e-6, "{}", 0, true},
                                  {"gemma2", 1e4, 8192, 1e-6, "{}", 4096, true},
                                  {"gemma3", 1e6, 131072, 1e-6, "{}", 4096, true},
                                  {"gemma3_text", 1e6, 131072, 1e-6, "{}", 4096, true},
                                  {"gemma4", 1e6, 131072, 1e-6, "{}", 512, true},
                                  {"gemma4_text", 1e6, 131072, 1e-6, "{}", 512, true},
                                  {"glm4", 1e4, 131072, 1.5625e-7, "{}", 0, false, true},
                                  {"glm4_moe", 1e4, 131072, 1e-5, kRouted},
                                  {"gpt_oss", 150000, 131072, 1e-5, kLocal, 128, false, true},
                                  {"granite", 1e4, 2048, 1e-6},
                                  {"granitemoe", 1e4, 2048, 1e-6},
                                  {"hunyuan_v1_dense", 1e4, 2048, 1e-5},
                                  {"kimi_k2", 1e4, 4096, 1e-6, kMla},
                                  {"llama", 1e4, 2048, 1e-6},
                                  {"llama4", 5e5, 131072, 1e-5, "{}", 8192},
                                  {"llama4_text", 5e5, 131072, 1e-5, "{}", 8192},
                                  {"minimax_m2", 5e6, 196608, 1e-6, kLocal},
                                  {"ministral3", 1e6, 262144, 1e-5},
                                  {"mistral", 1e4, 131072, 1e-6, "{}", 4096},
                                  {"mistral3", 1e4, 131072, 1e-6, "{}", 4096},
                                  {"mixtral", 1e6, 131072, 1e-5},
                                  {"nemotron", 1e4, 4096, 1e-5},
                                  {"olmo2", 1e4, 2048, 1e-5},
                                  {"olmo3", 5e5, 2048, 1e-5, "{}", 4096},
                                  {"olmoe", 1e4, 4096, 1e-5, R"({"num_experts": 64})"},
                                  {"phi3", 1e4, 4096, 1e-5},
                                  {"qwen2", 1e4, 32768, 1e-6, "{}", 0, false, true},
                                  {"qwen2_moe", 1e4, 32768, 1e-6, kShared, 0, false, true},
                                  {"qwen3", 1e4, 32768, 1e-6},
                                  {"qwen3_5", 1e4, 32768, 1e-6},
                                  {"qwen3_5_moe", 1e4, 32768, 1e-6, kShared},
                                  {"qwen3_5_moe_text", 1e4, 32768, 1e-6, kShared},
                                  {"qwen3_5_text", 1e4, 32768, 1e-6},
                                  {"qwen3_moe", 1e4, 32768, 1e-6, kQwen},
                                  {"qwen3_next", 1e4, 32768, 1e-6, kShared},
                                  {"seed_oss", 1e4, 524288, 1e-6, "{}", 0, false, true},
                                  {"smollm3", 2e6, 32768, 1e-6, "{}", 0, true},
                                  {"starcoder2", 1e4, 4096, 1e-5, "{}", 0, true, true}};

TEST(FamilyDefaultsTest, ASilentConfigMeansWhatTransformersMeansByIt) {
  std::set<std::string> types;
  for (const Defaults& defaults : kDefaults) {
    SCOPED_TRACE(defaults.model_type);
    types.insert(defaults.model_type);
    const auto parsed = ParseStrictly(Silent(defaults.model_type, defaults.more));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const ModelConfig& config = parsed->model;
    EXPECT_EQ(config.rope.theta, defaults.theta);
    EXPECT_EQ(config.max_position_embeddings, defaults.context);
    EXPECT_FLOAT_EQ(config.rms_norm_eps, static_cast<float>(defaults.norm_epsilon));
    EXPECT_EQ(config.WindowOf(0) + config.ChunkOf(0), defaults.window);
    EXPECT_EQ(config.tie_word_embeddings, defaults.is_tied);
    EXPECT_EQ(config.qkv_bias, defaults.qkv_bias);
  }
  for (const FamilySpec* family : AllFamilySpecs()) {
    EXPECT_TRUE(types.contains(family->model_type)) << family->model_type << " has no row above";
  }
}

TEST(FamilyDefaultsTest, ASilentGptOssHasYarn) {
  json config = Silent("gpt_oss", kLocal);
  const RopeConfig rope = ParseOk(config).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_FALSE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(32.0) + 1, 1e-12);
  config["rope_theta"] = 1e5;
  EXPECT_EQ(ParseOk(config).rope.theta, 1e5);
  EXPECT_EQ(ParseOk(config).rope.factor, 32);
  config["rope_scaling"] = nullptr;  // stated: there is none
  EXPECT_EQ(ParseOk(config).rope.scaling, RopeScaling::kNone);
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(ParseOk(config).rope.scaling, RopeScaling::kNone);
}

TEST(FamilyDefaultsTest, Ministral3ScalesQWhateverTheTypeOfItsRope) {
  json config = Silent("ministral3");
  config["rope_parameters"] = json::parse(R"({"rope_type": "default", "rope_theta": 1e6,
      "llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 64})");
  const auto parsed = ParseStrictly(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->model.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(parsed->model.q_scale_beta, 0.2);
  EXPECT_EQ(parsed->model.q_scale_context, 64);
  config["rope_parameters"].erase("original_max_position_embeddings");
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("rope_parameters.original_max_position_embeddings"));
}

TEST(FamilyDefaultsTest, ASilentMinistral3HasYarnAndScalesQInEitherCheckpoint) {
  json multimodal = Silent("mistral3");
  multimodal["text_config"]["model_type"] = "ministral3";
  json with_null = Silent("ministral3");
  with_null["rope_scaling"] = nullptr;
  for (const json& json_config : {Silent("ministral3"), multimodal, with_null}) {
    const ModelConfig config = ParseOk(json_config);
    EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.factor, 16);
    EXPECT_EQ(config.rope.original_max_position_embeddings, 16384);
    EXPECT_NEAR(config.rope.attention_factor, 1, 1e-12);
    EXPECT_EQ(config.q_scale_beta, 0.1);
    EXPECT_EQ(config.q_scale_context, 16384);
    EXPECT_EQ(config.WindowOf(0), 0);
  }
  json with_theta = Silent("ministral3");
  with_theta["rope_theta"] = 1e5;
  EXPECT_EQ(ParseOk(with_theta).rope.theta, 1e5);
  EXPECT_EQ(ParseOk(with_theta).rope.factor, 16);
}

TEST(FamilyDefaultsTest, ASilentDeepseekV3RoutesAsV3) {
  for (const char* model_type : {"deepseek_v3", "kimi_k2"}) {
    const ModelConfig config = ParseOk(Silent(model_type, kMla));
    EXPECT_EQ(config.moe.router.scale, 2.5F);
    EXPECT_EQ(config.moe.router.num_groups, 8);
    EXPECT_EQ(config.moe.router.num_chosen_groups, 4);
    EXPECT_TRUE(config.moe.router.normalizes);
    EXPECT_FALSE(config.UsesExperts(2));
    EXPECT_TRUE(config.UsesExperts(3));
    EXPECT_EQ(config.moe.shared_intermediate_size, 512);
  }
  const ModelConfig v2 = ParseOk(Silent("deepseek_v2", kMla));
  EXPECT_EQ(v2.moe.router.scale, 1);
  EXPECT_EQ(v2.moe.router.num_groups, 1);
  EXPECT_TRUE(v2.UsesExperts(0));
  EXPECT_EQ(v2.moe.shared_intermediate_size, 1024);
}

TEST(FamilyDefaultsTest, Gemma2HasItsSoftCapsUnlessTheyAreNull) {
  json config = Silent("gemma2");
  EXPECT_EQ(ParseOk(config).attention_soft_cap, 50);
  EXPECT_EQ(ParseOk(config).logit_soft_cap, 30);
  config["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(ParseOk(config).attention_soft_cap, 0);
  EXPECT_EQ(ParseOk(config).logit_soft_cap, 30);
  config["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(ParseOk(config).logit_soft_cap, 0);
  EXPECT_EQ(ParseOk(Silent("gemma3_text")).attention_soft_cap, 0);
  EXPECT_EQ(ParseOk(Silent("gemma3_text")).logit_soft_cap, 0);
}

TEST(FamilyDefaultsTest, SmolLm3sWindowIsThatOfTheLayersWithoutRope) {
  json config = Silent("smollm3", R"({"use_sliding_window": true, "sliding_window": 64,
      "max_window_layers": 2})");
  for (int layer = 0; layer < 8; ++layer) {
    const ModelConfig smollm = ParseOk(config);
    EXPECT_EQ(smollm.UsesRope(layer), layer % 4 != 3) << layer;
    EXPECT_EQ(smollm.WindowOf(layer), layer % 4 == 3 ? 64 : 0) << layer;
  }
  config["no_rope_layers"] = {0, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(ParseOk(config).WindowOf(0), 64);
  EXPECT_EQ(ParseOk(config).WindowOf(3), 0);
  config["layer_types"] = std::vector<std::string>(8, "full_attention");
  EXPECT_EQ(ParseOk(config).WindowOf(0), 0);
  config.erase("layer_types");
  config["use_sliding_window"] = false;
  EXPECT_EQ(ParseOk(config).WindowOf(0), 0);
}

TEST(FamilyDefaultsTest, Qwen3MoesWindowIsThatOfAllLayers) {
  json config = Silent("qwen3_moe", kQwen);
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 6;
  EXPECT_EQ(ParseOk(config).WindowOf(0), 4096);
  EXPECT_EQ(ParseOk(config).WindowOf(7), 4096);
  config["layer_types"] = std::vector<std::string>(8, "sliding_attention");
  EXPECT_EQ(ParseOk(config).WindowOf(0), 4096);
  config["layer_types"][0] = "full_attention";
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("with use_sliding_window all must be sliding_attention"));
}

}  // namespace
}  // namespace bulkhead
