// What published configs of the families say beyond the fixtures: fields that they leave out, and
// spellings of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "runtime/model/rope_table.h"
#include "shard/model_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

absl::StatusOr<ParsedConfig> Parse(const json& config) {
  return ParseModelConfig(config.dump(), "", UnknownFields::kRefuse, AllFamilySpecs());
}

ModelConfig ParseOk(const json& config) {
  auto parsed = Parse(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->model : ModelConfig();
}

json Of(const char* architecture, const char* model_type, const char* more) {
  json config = json::parse(R"({"hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 256000, "max_position_embeddings": 8192})");
  config.update(json::parse(more));
  config["architectures"] = {architecture};
  config["model_type"] = model_type;
  return config;
}

TEST(FamilyConfigTest, AMultimodalGemma3LeavesOutWhatIsTheDefault) {
  const ModelConfig config = ParseOk(json::parse(R"({
      "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
      "eos_token_id": [1, 106], "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                      "num_hidden_layers": 34, "sliding_window": 1024,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"));
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.window_rope->theta, 1e4);
  EXPECT_EQ(config.WindowOf(4), 1024);
  EXPECT_EQ(config.WindowOf(5), 0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.attention_scale, 1.0F / 16);
}

TEST(FamilyConfigTest, AFirstGemmaMeansTheTanhFormByGelu) {
  const char* fields = R"({"hidden_act": "gelu", "hidden_activation": null})";
  EXPECT_EQ(ParseOk(Of("GemmaForCausalLM", "gemma", fields)).activation, Activation::kGeluTanh);
  const auto refused = Parse(Of("GemmaForCausalLM", "gemma", R"({"hidden_activation": "gelu"})"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("hidden_activation"));
}

TEST(FamilyConfigTest, AnExaonePatternMayBeLettersWhereLayerTypesSayIt) {
  json config = Of("Exaone4ForCausalLM", "exaone4",
                   R"({"sliding_window": 4096, "sliding_window_pattern": "LLLG"})");
  config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention",
                           "full_attention",    "sliding_attention", "sliding_attention",
                           "sliding_attention", "full_attention"};
  const ModelConfig exaone = ParseOk(config);
  EXPECT_EQ(exaone.WindowOf(6), 4096);
  EXPECT_TRUE(exaone.UsesRope(6));
  EXPECT_EQ(exaone.WindowOf(7), 0);
  EXPECT_FALSE(exaone.UsesRope(7));
  config.erase("layer_types");
  EXPECT_FALSE(Parse(config).ok());
}

TEST(FamilyConfigTest, WithoutAWindowEveryLayerOfExaoneHasPositions) {
  const ModelConfig config =
      ParseOk(Of("Exaone4ForCausalLM", "exaone4", R"({"sliding_window": null})"));
  EXPECT_TRUE(config.UsesRope(3));
}

TEST(FamilyConfigTest, NemotronAndGlm4TurnHalfOfAHeadUnlessTheySayOtherwise) {
  const ModelConfig nemotron = ParseOk(Of("NemotronForCausalLM", "nemotron", "{}"));
  EXPECT_EQ(RotaryDim(nemotron.rope, nemotron.head_dim), 64);
  const ModelConfig glm =
      ParseOk(Of("Glm4ForCausalLM", "glm4", R"({"partial_rotary_factor": 0.25})"));
  EXPECT_EQ(RotaryDim(glm.rope, glm.head_dim), 32);
}

TEST(FamilyConfigTest, LongRopesListsHaveANumberForEachTurnedPair) {
  json config = Of("Phi3ForCausalLM", "phi3", R"({"partial_rotary_factor": 0.75,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "longrope"}})");
  config["rope_scaling"]["short_factor"] = std::vector<double>(48, 1.0);
  config["rope_scaling"]["long_factor"] = std::vector<double>(48, 2.0);
  const RopeConfig rope = ParseOk(config).rope;
  EXPECT_NEAR(rope.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-12);
  // The long factors count for all positions once the context is beyond the original.
  EXPECT_EQ(RopeInverseFrequencies(rope, 96, 4096)[0], 1.0F);
  EXPECT_EQ(RopeInverseFrequencies(rope, 96, 4097)[0], 0.5F);
  config["rope_scaling"]["long_factor"] = std::vector<double>(64, 2.0);
  EXPECT_THAT(std::string(Parse(config).status().message()), HasSubstr("they must have 48"));
}

TEST(FamilyConfigTest, HunyuansAlphaScalesTheta) {
  const RopeConfig rope = ParseOk(Of("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", R"({
      "use_qk_norm": true, "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1,
          "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"}})"))
                              .rope;
  const double theta = 1e4 * std::pow(1000.0, 128.0 / 126);
  EXPECT_NEAR(RopeInverseFrequencies(rope, 128, 8192)[1], std::pow(theta, -2.0 / 128), 1e-6);
}

TEST(FamilyConfigTest, YarnWithAThetaOf1IsRefused) {
  const auto parsed = Parse(Of("LlamaForCausalLM", "llama", R"({"rope_theta": 1, "rope_scaling": {
      "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}})"));
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("rope_theta is 1; with yarn"));
}

TEST(FamilyConfigTest, YarnGoesOverBetweenItsBorders) {
  const RopeConfig rope = ParseOk(Of("LlamaForCausalLM", "llama", R"({"rope_scaling": {
      "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}})"))
                              .rope;
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  const std::vector<float> inverse = RopeInverseFrequencies(rope, 128, 8192);
  EXPECT_EQ(inverse[0], 1.0F);                                             // fast: as it is
  EXPECT_NEAR(inverse[63] * 4, std::pow(1e4, -126.0 / 128), 1e-9);         // slow: divided
  EXPECT_LT(inverse[32], static_cast<float>(std::pow(1e4, -64.0 / 128)));  // between them
}

}  // namespace
}  // namespace bulkhead
