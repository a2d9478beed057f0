// What published configs of the families say beyond the fixtures: fields that they leave out, and
// spellings of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "runtime/model/rope_table.h"
#include "shard/config_fields.h"
#include "shard/decoder_fields.h"
#include "shard/model_config.h"
#include "shard/tensor_row.h"
#include "tests/shard/strict_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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
  EXPECT_EQ(config.embedding_multiplier, 50.5F);  // sqrt(2560), 50.596, in bf16
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

TEST(FamilyConfigTest, AMultimodalMistral3HoldsItsTextUnderAPrefix) {
  const ModelConfig config = ParseOk(json::parse(R"({
      "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
      "image_token_index": 10, "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
      "spatial_merge_size": 2, "vision_feature_layer": -1, "torch_dtype": "bfloat16",
      "vision_config": {"hidden_size": 1024, "model_type": "pixtral"},
      "text_config": {"model_type": "mistral", "attention_dropout": 0.0, "head_dim": 128,
                      "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
                      "intermediate_size": 32768, "max_position_embeddings": 131072,
                      "num_attention_heads": 32, "num_hidden_layers": 40,
                      "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e9,
                      "sliding_window": null, "use_cache": true, "vocab_size": 131072}})"));
  EXPECT_EQ(config.rope.theta, 1e9);
  EXPECT_EQ(config.WindowOf(0), 0);
  std::set<std::string> names;
  for (const TensorRow& row : AllTensors(config)) names.insert(row.Name());
  EXPECT_TRUE(names.contains("language_model.model.layers.39.self_attn.q_proj.weight"));
  EXPECT_TRUE(names.contains("language_model.lm_head.weight"));
}

TEST(FamilyConfigTest, AFirstGemmaMeansTheTanhFormByGelu) {
  const char* fields = R"({"hidden_act": "gelu", "hidden_activation": null})";
  EXPECT_EQ(ParseOk(Of("GemmaForCausalLM", "gemma", fields)).activation, Activation::kGeluTanh);
  const auto refused =
      ParseStrictly(Of("GemmaForCausalLM", "gemma", R"({"hidden_activation": "gelu"})"));
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
  EXPECT_FALSE(ParseStrictly(config).ok());
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
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("they must have 48"));
}

TEST(FamilyConfigTest, TheOriginalContextIsStatedOnceOrIsTheWholeOne) {
  constexpr const char* kName = "original_max_position_embeddings";
  for (const std::string type : {"llama3", "yarn"}) {
    json config = Of("LlamaForCausalLM", "llama", R"({"rope_scaling": {"factor": 4}})");
    config["rope_scaling"]["rope_type"] = type;
    if (type == "llama3") {
      config["rope_scaling"]["low_freq_factor"] = 1;
      config["rope_scaling"]["high_freq_factor"] = 4;
    }
    EXPECT_EQ(ParseOk(config).rope.original_max_position_embeddings, 8192);
    config[kName] = 64;
    EXPECT_EQ(ParseOk(config).rope.original_max_position_embeddings, 64);
    config["rope_scaling"][kName] = 64;
    EXPECT_EQ(ParseOk(config).rope.original_max_position_embeddings, 64);
    config["rope_scaling"][kName] = 32;  // transformers' versions differ in which one counts
    EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
                HasSubstr("it contradicts the field of that name beside it, 64"));
  }
}

TEST(FamilyConfigTest, LongRopesFactorIsTheStatedOne) {
  json config = Of("Phi3ForCausalLM", "phi3", R"({"original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "longrope", "factor": 8}})");
  config["rope_scaling"]["short_factor"] = std::vector<double>(64, 1.0);
  config["rope_scaling"]["long_factor"] = std::vector<double>(64, 2.0);
  EXPECT_NEAR(ParseOk(config).rope.attention_factor,
              std::sqrt(1 + std::log(8.0) / std::log(4096.0)), 1e-12);
}

TEST(FamilyConfigTest, GemmasEmbeddingScaleIsInTheTypeOfItsTensors) {
  const auto scale = [](const char* more) {
    json config = Of("Gemma2ForCausalLM", "gemma2", more);
    config["hidden_size"] = 72;
    return ParseOk(config).embedding_multiplier;
  };
  EXPECT_EQ(scale(R"({"torch_dtype": "bfloat16"})"), 8.5F);
  EXPECT_EQ(scale("{}"), 8.5F) << "published in bf16";
  EXPECT_FLOAT_EQ(scale(R"({"dtype": "float32"})"), std::sqrt(72.0F));
}

// transformers: above the one border frequencies are divided, below it they stay.
TEST(FamilyConfigTest, Llama3sFrequencyFactorsMayBeEqual) {
  RopeConfig rope;
  rope.scaling = RopeScaling::kLlama3;
  rope.theta = 500000;
  rope.factor = 16;
  rope.low_freq_factor = rope.high_freq_factor = 1;
  rope.original_max_position_embeddings = 8192;
  const std::vector<float> inverse = RopeInverseFrequencies(rope, 128, 8192);
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -2.0 * i / 128);
    const bool is_long = 2 * M_PI / plain > 8192;
    EXPECT_FLOAT_EQ(inverse[i], static_cast<float>(is_long ? plain / 16 : plain)) << i;
  }
}

TEST(FamilyConfigTest, HunyuansAlphaScalesTheta) {
  const RopeConfig rope = ParseOk(Of("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", R"({
      "use_qk_norm": true, "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1,
          "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"}})"))
                              .rope;
  const double theta = 1e4 * std::pow(1000.0, 128.0 / 126);
  EXPECT_NEAR(RopeInverseFrequencies(rope, 128, 8192)[1], std::pow(theta, -2.0 / 128), 1e-6);
}

TEST(FamilyConfigTest, AnAlphaIsReadOfHunyuanAlone) {
  const char* fields = R"({"rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}})";
  EXPECT_TRUE(ParseStrictly(Of("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", fields)).ok());
  EXPECT_THAT(
      std::string(ParseStrictly(Of("LlamaForCausalLM", "llama", fields)).status().message()),
      HasSubstr("rope_scaling.type is \"dynamic\", which is not supported; alpha is of "
                "Hunyuan's checkpoints alone; supported are default, linear"));
}

// Llama 4: log1p(floor((position + 1) / floor_scale)) * attn_scale + 1.
TEST(FamilyConfigTest, QIsScaledByPosition) {
  ModelConfig config;
  config.q_scale_beta = 0.1;
  config.q_scale_context = 32;
  config.q_scale_offset = 1;
  std::vector<float> scales(3);
  FillQScale(config, 30,
             MatrixView(reinterpret_cast<std::byte*>(scales.data()), DType::kF32, 3, 1));
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_FLOAT_EQ(scales[1], static_cast<float>(1 + 0.1 * std::log(2.0)));
  EXPECT_EQ(scales[2], scales[1]);
}

TEST(FamilyConfigTest, LayersMayBeChunked) {
  const auto read = [](const char* text, ModelConfig& config) {
    const json object = json::parse(text);
    ConfigFields fields(object, "config.json");
    config.num_hidden_layers = 2;
    ReadWindow(fields, {.has_window = false, .chunk = 8192}, config);
    return fields.status();
  };
  ModelConfig config;
  ASSERT_TRUE(read(R"({"layer_types": ["chunked_attention", "full_attention"]})", config).ok());
  EXPECT_EQ(config.ChunkOf(0), 8192);
  EXPECT_EQ(config.WindowOf(0), 0);
  EXPECT_EQ(config.ChunkOf(1), 0);
  ASSERT_TRUE(read(R"({"attention_chunk_size": 64,
                       "layer_types": ["full_attention", "chunked_attention"]})",
                   config)
                  .ok());
  EXPECT_EQ(config.ChunkOf(0), 0);
  EXPECT_EQ(config.ChunkOf(1), 64);
  EXPECT_FALSE(read(R"({"attention_chunk_size": null,
                        "layer_types": ["full_attention", "chunked_attention"]})",
                    config)
                   .ok());
  EXPECT_FALSE(read(R"({"layer_types": ["full_attention", "sliding_attention"]})", config).ok());
}

TEST(FamilyConfigTest, YarnIsThatOfOlmo3sFullLayersAlone) {
  const json config = Of("Olmo3ForCausalLM", "olmo3", R"({"rope_theta": 1e5, "rope_scaling": {
      "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}})");
  const ModelConfig olmo = ParseOk(config);
  EXPECT_EQ(olmo.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(olmo.rope.theta, 1e5);
  ASSERT_TRUE(olmo.window_rope.has_value());
  EXPECT_EQ(olmo.window_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(olmo.window_rope->theta, 1e5);
  EXPECT_EQ(olmo.WindowOf(2), 4096);
  EXPECT_EQ(olmo.WindowOf(3), 0);
}

TEST(FamilyConfigTest, YarnWithAThetaOf1IsRefused) {
  const auto parsed =
      ParseStrictly(Of("LlamaForCausalLM", "llama", R"({"rope_theta": 1, "rope_scaling": {
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

// The published config of DeepSeek V3, but for the format of its weights.
json DeepseekV3() {
  return json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1,
      "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
      "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v3",
      "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
      "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
      "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
      "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})");
}

TEST(FamilyConfigTest, DeepseekV3IsReadAsPublished) {
  const ModelConfig config = ParseOk(DeepseekV3());
  EXPECT_EQ(config.latent, (LatentConfig{512, 1536, 128, 64, 128}));
  EXPECT_EQ(config.CachedDim(), 576);
  EXPECT_EQ(config.num_key_value_heads, 1);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_TRUE(config.rope_interleaved);
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(config.attention_scale, mscale * mscale / std::sqrt(192.0), 1e-7);
  EXPECT_NEAR(config.rope.attention_factor, 1, 1e-12);
  EXPECT_FALSE(config.UsesExperts(2));
  EXPECT_TRUE(config.UsesExperts(3));
  EXPECT_EQ(config.moe.shared_intermediate_size, 2048);
  EXPECT_EQ(config.moe.router.num_groups, 8);
  EXPECT_EQ(config.moe.router.num_chosen_groups, 4);
  EXPECT_EQ(config.moe.router.experts_per_group_score, 2);
}

TEST(FamilyConfigTest, KimiK2IsDeepseekV3WithItsOwnType) {
  json json_config = DeepseekV3();
  json_config.update(json::parse(R"({"model_type": "kimi_k2", "n_routed_experts": 384, "n_group": 1,
      "topk_group": 1, "num_attention_heads": 64, "num_key_value_heads": 64})"));
  const ModelConfig config = ParseOk(json_config);
  EXPECT_EQ(config.moe.num_experts, 384);
  EXPECT_EQ(config.CachedDim(), 576);
}

TEST(FamilyConfigTest, DeepseekV2ChoosesOfAllExpertsOrOfTheBestGroups) {
  json v2 = DeepseekV3();
  v2.update(json::parse(R"({"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
      "q_lora_rank": null, "scoring_func": "softmax", "topk_method": "greedy",
      "norm_topk_prob": false, "num_nextn_predict_layers": null})"));
  EXPECT_EQ(ParseOk(v2).latent.q_rank, 0);
  EXPECT_EQ(ParseOk(v2).moe.router.num_groups, 1);
  v2["topk_method"] = "group_limited_greedy";
  const RouterOptions router = ParseOk(v2).moe.router;
  EXPECT_EQ(router.num_groups, 8);
  EXPECT_EQ(router.experts_per_group_score, 1);
  v2["topk_method"] = "noaux_tc";
  EXPECT_THAT(std::string(ParseStrictly(v2).status().message()), HasSubstr("topk_method"));
}

TEST(FamilyConfigTest, HostileSizesOfLatentsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {{"kv_lora_rank", "0"},
                                                       {"kv_lora_rank", "-512"},
                                                       {"kv_lora_rank", "513"},
                                                       {"kv_lora_rank", "1000000"},
                                                       {"kv_lora_rank", "null"},
                                                       {"kv_lora_rank", "512.5"},
                                                       {"q_lora_rank", "0"},
                                                       {"q_lora_rank", "100000"},
                                                       {"qk_nope_head_dim", "0"},
                                                       {"qk_nope_head_dim", "2048"},
                                                       {"qk_rope_head_dim", "0"},
                                                       {"qk_rope_head_dim", "63"},
                                                       {"qk_rope_head_dim", "2000"},
                                                       {"v_head_dim", "0"},
                                                       {"v_head_dim", "2147483647"},
                                                       {"qk_head_dim", "191"},
                                                       {"num_key_value_heads", "8"},
                                                       {"head_dim", "128"},
                                                       {"n_group", "7"},
                                                       {"topk_group", "9"},
                                                       {"scoring_func", "\"softmax\""},
                                                       {"first_k_dense_replace", "62"},
                                                       {"moe_layer_freq", "0"},
                                                       {"mlp_bias", "true"},
                                                       {"num_attention_heads", "100000"}};
  for (const auto& [field, value] : cases) {
    json config = DeepseekV3();
    config[field] = json::parse(value);
    const auto parsed = ParseStrictly(config);
    ASSERT_FALSE(parsed.ok()) << field << " " << value;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(field)) << value;
  }
}

// At whose borders codes cannot be cut.
TEST(FamilyConfigTest, HeadsOfLatentAttentionAreHeldInNumbers) {
  json config = DeepseekV3();
  config["quantization_config"] =
      json::parse(R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})");
  for (const bool converted : {true, false}) {
    const auto parsed = ParseStrictly(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    int heads = 0;
    for (const TensorRow& row : LayerTensors(parsed->model, 0)) {
      if (row.name == "self_attn.kv_b_proj") {
        ++heads;
        EXPECT_EQ(row.held_as, converted ? HeldAs::kDequantized : HeldAs::kKeptMatrix);
      } else if (!row.is_vector()) {
        EXPECT_EQ(row.held_as, HeldAs::kLayerMatrix) << row.Name();
      }
    }
    EXPECT_EQ(heads, 2 * parsed->model.num_attention_heads);
    config["quantization_config"]["modules_to_not_convert"] = json::array({"kv_b_proj"});
  }
}

}  // namespace
}  // namespace bulkhead
