// Gemma 4's config: both spellings of the heads of layers without a window, whose cache a layer
// reads, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "runtime/model/rope_table.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"
#include "tests/shard/strict_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// Sizes of a small one, in the spelling of the first configs; the rest is what they leave out.
json Text() {
  return json::parse(R"({"model_type": "gemma4_text", "attention_bias": false,
      "attention_k_eq_v": false, "enable_moe_block": false, "final_logit_softcapping": 30.0,
      "global_head_dim": 512, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 1536, "hidden_size_per_layer_input": 256, "intermediate_size": 6144,
      "max_position_embeddings": 131072, "moe_intermediate_size": null, "num_attention_heads": 8,
      "num_experts": null, "num_global_key_value_heads": null, "num_hidden_layers": 12,
      "num_key_value_heads": 2, "num_kv_shared_layers": 5, "rms_norm_eps": 1e-06,
      "rope_parameters": {
          "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                             "rope_type": "proportional"},
          "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
      "sliding_window": 512, "tie_word_embeddings": true, "top_k_experts": null,
      "use_bidirectional_attention": null, "use_cache": true, "use_double_wide_mlp": true,
      "vocab_size": 262144, "vocab_size_per_layer_input": 262144})");
}

json Multimodal() {
  json config = json::parse(R"({"architectures": ["Gemma4ForConditionalGeneration"],
      "model_type": "gemma4", "audio_config": {"hidden_size": 1024}, "eos_token_id": [1, 106],
      "vision_config": {"hidden_size": 768}, "image_token_id": 258880})");
  config["text_config"] = Text();
  return config;
}

TEST(Gemma4ConfigTest, TheLastLayersReadWhatTheLastOfTheirKindCached) {
  const ModelConfig config = ParseOk(Multimodal());
  EXPECT_EQ(config.WindowOf(4), 512);
  EXPECT_EQ(config.WindowOf(5), 0);
  EXPECT_EQ(config.WindowOf(11), 0);
  EXPECT_EQ(config.HeadDimOf(4), 256);
  EXPECT_EQ(config.HeadDimOf(5), 512);
  EXPECT_EQ(config.KvHeadsOf(5), 2);
  EXPECT_THAT(config.kv_layer, ElementsAre(0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 5));
  EXPECT_TRUE(config.OwnsKv(6));
  EXPECT_FALSE(config.OwnsKv(7));
  EXPECT_EQ(config.MlpFactor(6), 1);
  EXPECT_EQ(config.MlpFactor(7), 2);
  EXPECT_EQ(config.attention_scale, 1);
  EXPECT_EQ(config.norm_weight_offset, 0);
  EXPECT_EQ(config.logit_soft_cap, 30);
  EXPECT_TRUE(config.tie_word_embeddings);
}

// As the 26B-A4B.
TEST(Gemma4ConfigTest, ExpertsAreBesideTheMlpOfEveryLayer) {
  json experts = Multimodal();
  json& text = experts["text_config"];
  text["enable_moe_block"] = true;
  text["num_experts"] = 128;
  text["top_k_experts"] = 8;
  text["moe_intermediate_size"] = 704;
  const ModelConfig config = ParseOk(experts);
  EXPECT_EQ(config.moe.num_experts, 128);
  EXPECT_EQ(config.moe.num_experts_per_tok, 8);
  EXPECT_EQ(config.moe.intermediate_size, 704);
  EXPECT_TRUE(config.moe.beside_mlp);
  EXPECT_GT(config.intermediate_size, 0);
  EXPECT_TRUE(config.UsesExperts(0) && config.UsesExperts(11));
  text["top_k_experts"] = 129;
  EXPECT_THAT(std::string(ParseStrictly(experts).status().message()), HasSubstr("top_k_experts"));
  text["top_k_experts"] = nullptr;
  EXPECT_THAT(std::string(ParseStrictly(experts).status().message()), HasSubstr("top_k_experts"));
}

// The first frequencies of a head that is turned whole: theta^(-2i / 512), for 64 pairs.
TEST(Gemma4ConfigTest, ProportionalRopeHasTheFrequenciesOfTheWholeHead) {
  for (const bool is_said : {true, false}) {
    json text = Multimodal();
    if (!is_said) text["text_config"].erase("rope_parameters");
    const ModelConfig config = ParseOk(text);
    EXPECT_EQ(RotaryDim(config.rope, 512), 128);
    const std::vector<float> inverse = RopeInverseFrequencies(config.rope, 128, 4096);
    for (const int i : {0, 1, 63}) {
      EXPECT_FLOAT_EQ(inverse[i], static_cast<float>(std::pow(1e6, -2.0 * i / 512)));
    }
    ASSERT_TRUE(config.window_rope.has_value());
    EXPECT_EQ(RotaryDim(*config.window_rope, 256), 256);
    EXPECT_EQ(config.window_rope->theta, 1e4);
  }
  json whole = Multimodal();
  whole["text_config"]["rope_parameters"]["full_attention"].erase("partial_rotary_factor");
  EXPECT_EQ(RotaryDim(ParseOk(whole).rope, 512), 512);
}

// As the 31B: 32 query heads read 16 KV heads or 4, whose values are the keys.
TEST(Gemma4ConfigTest, RanksHaveKvHeadsOfBothKinds) {
  json json_config = Multimodal();
  json_config["text_config"].update(json::parse(R"({"attention_k_eq_v": true,
      "hidden_size_per_layer_input": 0, "num_attention_heads": 32, "num_key_value_heads": 16,
      "num_global_key_value_heads": 4, "num_kv_shared_layers": 0})"));
  const ModelConfig config = ParseOk(json_config);
  EXPECT_EQ(config.KvHeadsOf(4), 16);
  EXPECT_EQ(config.KvHeadsOf(5), 4);
  EXPECT_TRUE(config.ValuesAreKeys(5));
  EXPECT_FALSE(config.ValuesAreKeys(4));
  const auto plan = ShardPlan::Create(config, 8);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rank(3).heads, (Range{12, 16}));
  EXPECT_EQ(plan->rank(3).kv_heads, (Range{6, 8}));
  EXPECT_THAT(plan->rank(3).head_to_kv, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(plan->rank(3).full_kv_heads, (Range{1, 2}));
  EXPECT_THAT(plan->rank(3).full_head_to_kv, ElementsAre(0, 0, 0, 0));
  const auto has = [&](const char* name) {
    for (const TensorRow& row : AllTensors(config)) {
      if (!row.optional && row.Name() == name) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("model.language_model.layers.4.self_attn.v_proj.weight"));
  EXPECT_TRUE(has("model.language_model.layers.5.self_attn.k_proj.weight"));
  EXPECT_FALSE(has("model.language_model.layers.5.self_attn.v_proj.weight"));
  EXPECT_FALSE(has("model.language_model.embed_tokens_per_layer.weight"));
  EXPECT_TRUE(has("model.language_model.layers.5.layer_scalar"));
}

TEST(Gemma4ConfigTest, TheNewerSpellingNamesLayers) {
  json config = Multimodal();
  json& text = config["text_config"];
  text.erase("global_head_dim");
  text["per_layer_config"] = json::parse(R"({"05": {"head_dim": 384, "num_key_value_heads": 4},
      "11": {"head_dim": 384, "num_key_value_heads": 4}, "0": {}})");
  const ModelConfig read = ParseOk(config);
  EXPECT_EQ(read.HeadDimOf(5), 384);
  EXPECT_EQ(read.KvHeadsOf(11), 4);
  EXPECT_EQ(read.KvHeadsOf(10), 2);
  text["per_layer_config"]["11"]["head_dim"] = 512;
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("layer 5 must have"));
  text["per_layer_config"]["11"]["head_dim"] = 384;
  text["per_layer_config"]["2"] = {{"head_dim", 128}};
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("layer 2 must have"));
  text["per_layer_config"] = nullptr;
  EXPECT_EQ(ParseOk(config).HeadDimOf(5), 256);
}

TEST(Gemma4ConfigTest, HostileValuesAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"global_head_dim", "0"},
      {"global_head_dim", "511"},
      {"global_head_dim", "1000000"},
      {"global_head_dim", "null"},
      {"num_global_key_value_heads", "0"},
      {"num_global_key_value_heads", "-1"},
      {"num_kv_shared_layers", "12"},
      {"num_kv_shared_layers", "-1"},
      {"num_kv_shared_layers", "7"},  // none without a window is left to read from
      {"num_kv_shared_layers", "2.5"},
      {"hidden_size_per_layer_input", "-1"},
      {"hidden_size_per_layer_input", "1000000"},
      {"hidden_size_per_layer_input", "\"256\""},
      {"vocab_size_per_layer_input", "262145"},
      {"vocab_size_per_layer_input", "0"},
      {"enable_moe_block", "1"},
      {"use_bidirectional_attention", "\"all\""},
      {"use_double_wide_mlp", "1"},
      {"hidden_activation", "\"silu\""},
      {"layer_types", R"(["full_attention"])"},
      {"per_layer_config", R"({"5": {"head_dim": 0}})"},
      {"per_layer_config", R"({"5": {"head_dim": 512}})"},
      {"per_layer_config", R"({"12": {"head_dim": 512}})"},
      {"per_layer_config", R"({"-1": {"head_dim": 512}})"},
      {"per_layer_config", R"({"99999999999": {"head_dim": 512}})"},
      {"per_layer_config", R"({"a": {"head_dim": 512}})"},
      {"per_layer_config", R"({"5": 512})"},
      {"per_layer_config", R"({"5": {"sliding_window": 4}})"},
      {"per_layer_config", "[]"},
      {"rope_parameters", R"({"rope_type": "default", "rope_theta": 10000.0})"},
      {"rope_parameters", R"({"full_attention": {"rope_type": "proportional"}})"},
      {"rope_scaling", R"({"rope_type": "linear", "factor": 8.0})"}};
  for (const auto& [field, value] : cases) {
    json config = Multimodal();
    config["text_config"][field] = json::parse(value);
    const auto parsed = ParseStrictly(config);
    ASSERT_FALSE(parsed.ok()) << field << " " << value;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(field)) << value;
  }
}

TEST(Gemma4ConfigTest, RopeThatIsNotItsOwnIsRefused) {
  json config = Multimodal();
  json& rope = config["text_config"]["rope_parameters"];
  rope["full_attention"]["rope_type"] = "default";
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("partial_rotary_factor"));
  rope["full_attention"]["rope_type"] = "proportional";
  rope["full_attention"]["partial_rotary_factor"] = 1e-3;
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("partial_rotary_factor"));
  rope["full_attention"]["partial_rotary_factor"] = 0.25;
  rope["sliding_attention"]["rope_type"] = "proportional";
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()), HasSubstr("rope_type"));
  json gemma3 = json::parse(R"({"architectures": ["Gemma3ForCausalLM"],
      "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 6})");
  gemma3["rope_parameters"] = Text()["rope_parameters"];
  EXPECT_THAT(std::string(ParseStrictly(gemma3).status().message()), HasSubstr("rope_type"));
}

TEST(Gemma4ConfigTest, TheLastLayerHasNoWindow) {
  json config = Multimodal();
  json& text = config["text_config"];
  text["num_hidden_layers"] = 8;
  text["num_kv_shared_layers"] = 0;
  EXPECT_EQ(ParseOk(config).WindowOf(7), 0);  // though it is not the sixth
  text["layer_types"] = std::vector<std::string>(8, "sliding_attention");
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()), HasSubstr("layer_types"));
}

}  // namespace
}  // namespace bulkhead
