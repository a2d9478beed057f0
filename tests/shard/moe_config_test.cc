// What published configs of mixtures of experts say, and what they must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "tests/shard/checkpoint_files.h"
#include "tests/shard/strict_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ModelConfig ParseOk(const char* text) { return bulkhead::ParseOk(json::parse(text)); }

constexpr char kQwen3[] = R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
    "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "use_sliding_window": false, "vocab_size": 151936})";

TEST(MoeConfigTest, Qwen3Of30BillionHasExpertsInEveryLayer) {
  const ModelConfig config = ParseOk(kQwen3);
  EXPECT_EQ(config.moe.num_experts, 128);
  EXPECT_EQ(config.moe.num_experts_per_tok, 8);
  EXPECT_EQ(config.moe.intermediate_size, 768);
  EXPECT_EQ(config.moe.shared_intermediate_size, 0);
  EXPECT_TRUE(config.moe.router.normalizes);
  EXPECT_TRUE(config.UsesExperts(0) && config.UsesExperts(47));
  EXPECT_EQ(config.intermediate_size, 0);  // no layer has an MLP
}

TEST(MoeConfigTest, SomeLayersMayBeDense) {
  json config = json::parse(kQwen3);
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const auto parsed = ParseStrictly(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->model.intermediate_size, 6144);
  EXPECT_FALSE(parsed->model.UsesExperts(0));
  EXPECT_TRUE(parsed->model.UsesExperts(1));
  EXPECT_FALSE(parsed->model.UsesExperts(3));
}

TEST(MoeConfigTest, Glm45AirHasAFirstDenseLayerAndASharedExpert) {
  const ModelConfig config = ParseOk(R"({"architectures": ["Glm4MoeForCausalLM"],
      "attention_bias": true, "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096,
      "hidden_act": "silu", "intermediate_size": 10944, "max_position_embeddings": 131072,
      "model_type": "glm4_moe", "moe_intermediate_size": 1408, "n_group": 1,
      "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
      "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46,
      "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
      "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": false,
      "vocab_size": 151552})");
  EXPECT_FALSE(config.UsesExperts(0));
  EXPECT_TRUE(config.UsesExperts(1));
  EXPECT_EQ(config.moe.shared_intermediate_size, 1408);
  EXPECT_EQ(config.moe.router.scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(config.moe.correction_bias);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.5);
}

TEST(MoeConfigTest, MiniMaxTurnsAsManyColumnsAsItSaysElseWholeHeads) {
  json config = json::parse(ReadFile(BH_TEST_DATA "/models/minimax_m2_bf16/config.json"));
  config.erase("rope_parameters");
  const auto turned = [&config] {
    const ModelConfig model = ParseOk(config.dump().c_str());
    return RotaryDim(model.rope, model.head_dim);
  };
  EXPECT_EQ(turned(), 16);   // in vLLM and transformers, too
  config["rotary_dim"] = 8;  // published: 64 of 128
  EXPECT_EQ(turned(), 8);
  config["rotary_dim"] = 12;
  EXPECT_EQ(turned(), 12);
  config["rope_parameters"] = {{"partial_rotary_factor", 0.25}, {"rope_type", "default"}};
  EXPECT_EQ(turned(), 4);
}

TEST(MoeConfigTest, AWindowOfQwen2MoeIsInEverySecondOneOfTheLowerLayers) {
  json config = json::parse(ReadFile(BH_TEST_DATA "/models/qwen2_moe_bf16/config.json"));
  config.erase("layer_types");
  config["num_hidden_layers"] = 6;
  config["use_sliding_window"] = true;
  config["sliding_window"] = 24;
  config["max_window_layers"] = 3;
  const ModelConfig model = ParseOk(config.dump().c_str());
  EXPECT_THAT(model.layer_uses_window,
              testing::ElementsAre(true, false, true, false, false, false));
  config["use_sliding_window"] = false;
  EXPECT_EQ(ParseOk(config.dump().c_str()).WindowOf(0), 0);
}

TEST(MoeConfigTest, SharedExpertsTogetherAreNoWiderThanAnMlp) {
  for (const char* family : {"deepseek_v2_bf16", "glm4_moe_bf16"}) {
    json config =
        json::parse(ReadFile(std::string(BH_TEST_DATA "/models/") + family + "/config.json"));
    config["n_shared_experts"] = 32;
    config["moe_intermediate_size"] = 32768;
    EXPECT_EQ(ParseOk(config.dump().c_str()).moe.shared_intermediate_size, 1 << 20);
    config["moe_intermediate_size"] = 32769;
    EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
                HasSubstr("moe_intermediate_size is 32769; it must be at most 32768 with 32 shared "
                          "experts"));
  }
}

TEST(MoeConfigTest, DeepSeeksScaleOfScoresIsYarnsAlone) {
  json config = json::parse(ReadFile(BH_TEST_DATA "/models/deepseek_v2_bf16/config.json"));
  config.erase("rope_parameters");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(ParseOk(config.dump().c_str()).rope.factor, 4);
  config["rope_scaling"]["mscale_all_dim"] = 1;
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("rope_scaling.mscale_all_dim"));
}

TEST(MoeConfigTest, Llama4ScoutIsReadFromItsTextConfig) {
  const ModelConfig config = ParseOk(R"({"architectures": ["Llama4ForConditionalGeneration"],
      "model_type": "llama4", "vision_config": {}, "text_config": {"attention_bias": false,
      "attention_chunk_size": 8192, "attn_scale": 0.1, "attn_temperature_tuning": 4,
      "floor_scale": 8192, "for_llm_compressor": false, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 5120, "interleave_moe_layer_step": 1, "intermediate_size": 8192,
      "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760,
      "model_type": "llama4_text", "no_rope_layers": [1, 1, 1, 0], "num_attention_heads": 40,
      "num_experts_per_tok": 1, "num_hidden_layers": 4, "num_key_value_heads": 8,
      "num_local_experts": 16, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "use_qk_norm": true,
      "vocab_size": 202048}})");
  EXPECT_EQ(config.ChunkOf(2), 8192);
  EXPECT_EQ(config.ChunkOf(3), 0);
  EXPECT_FALSE(config.UsesRope(3));
  EXPECT_EQ(config.moe.intermediate_size, 8192);
  EXPECT_TRUE(config.moe.weighs_inputs);
  EXPECT_EQ(config.q_scale_context, 8192);
}

TEST(MoeConfigTest, MiniMaxM2TurnsHalfOfAHead) {
  const ModelConfig config = ParseOk(R"({"architectures": ["MiniMaxM2ForCausalLM"],
      "attn_type_list": [1, 1], "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072,
      "intermediate_size": 1536, "layernorm_full_attention_beta": 1.0,
      "max_position_embeddings": 196608, "mlp_intermediate_size": 8192,
      "model_type": "minimax_m2", "num_attention_heads": 48, "num_experts_per_tok": 8,
      "num_hidden_layers": 2, "num_key_value_heads": 8, "num_local_experts": 256,
      "num_mtp_modules": 3, "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06,
      "rope_theta": 5000000, "rotary_dim": 64, "scoring_func": "sigmoid",
      "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "use_mtp": true,
      "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})");
  EXPECT_EQ(RotaryDim(config.rope, config.head_dim), 64);
  EXPECT_TRUE(config.qk_norm_of_all_heads);
}

TEST(MoeConfigTest, GptOssHasSinksAndAWindowOnEverySecondLayer) {
  const ModelConfig config = ParseOk(R"({"architectures": ["GptOssForCausalLM"],
      "attention_bias": true, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880,
      "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
      "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
      "num_local_experts": 32, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "swiglu_limit": 7.0, "vocab_size": 201088})");
  EXPECT_EQ(config.WindowOf(0), 128);
  EXPECT_EQ(config.WindowOf(1), 0);
  EXPECT_TRUE(config.attention_sinks && config.moe.biases && config.moe.clamped_swiglu);
  EXPECT_FLOAT_EQ(config.moe.swiglu_alpha, 1.702F);
}

TEST(MoeConfigTest, NumbersThatCannotBeAreRefused) {
  const auto refusal = [](const char* name, const json& value) {
    json config = json::parse(kQwen3);
    config[name] = value;
    return std::string(ParseStrictly(config).status().message());
  };
  EXPECT_THAT(refusal("num_experts", 0), HasSubstr("num_experts is 0"));
  EXPECT_THAT(refusal("num_experts", 1 << 20), HasSubstr("num_experts is 1048576"));
  EXPECT_THAT(refusal("num_experts", 4), HasSubstr("it must be at most num_experts, 4"));
  EXPECT_THAT(refusal("num_experts_per_tok", 65), HasSubstr("num_experts_per_tok is 65"));
  EXPECT_THAT(refusal("moe_intermediate_size", -1), HasSubstr("moe_intermediate_size is -1"));
  EXPECT_THAT(refusal("mlp_only_layers", json::array({48})), HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refusal("decoder_sparse_step", 0), HasSubstr("decoder_sparse_step is 0"));
}

TEST(MoeConfigTest, ActOrderIsRefused) {
  json config = json::parse(kQwen3);
  config["quantization_config"] = {
      {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}};
  EXPECT_TRUE(ParseStrictly(config).ok()) << ParseStrictly(config).status();
  config["quantization_config"]["desc_act"] = true;
  const absl::Status refused = ParseStrictly(config).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("desc_act"));
}

TEST(MoeConfigTest, ExpertsOfALayerAreAllQuantisedOrNone) {
  json config = json::parse(kQwen3);
  const auto parse = [&](const json& ignore) {
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"ignore", ignore},
        {"config_groups",
         {{"group_0",
           {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}}}}}}}};
    return ParseStrictly(config).status();
  };
  EXPECT_TRUE(parse({"lm_head", "re:.*mlp[.]gate$"}).ok()) << parse({"lm_head"});
  EXPECT_TRUE(parse({"re:.*layers[.]3[.]mlp[.]experts.*"}).ok());
  EXPECT_TRUE(parse({"re:.*down_proj$"}).ok());
  for (const char* one : {"model.layers.3.mlp.experts.127.gate_proj",
                          "re:.*layers[.]3[.]mlp[.]experts[.]0[.].*", "re:.*experts.*up_proj$"}) {
    const absl::Status refused = parse({one});
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << one;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("mlp.experts."));
  }
}

TEST(MoeConfigTest, TheExpertsOfAllLayersTogetherAreBounded) {
  json config = json::parse(kQwen3);
  config["num_hidden_layers"] = 512;
  EXPECT_TRUE(ParseStrictly(config).ok());  // 65,536
  config["num_hidden_layers"] = 513;
  EXPECT_THAT(std::string(ParseStrictly(config).status().message()),
              HasSubstr("num_experts is 128; over all 513 layers there may be 65536 experts"));
}

TEST(MoeConfigTest, GroupsMustDivideTheExpertsAndHoldThoseThatAreChosen) {
  const auto refusal = [](int num_groups, int num_chosen) {
    json config = json::parse(R"({"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 64,
        "intermediate_size": 64, "max_position_embeddings": 256, "model_type": "glm4_moe",
        "moe_intermediate_size": 48, "n_routed_experts": 16, "num_attention_heads": 8,
        "num_experts_per_tok": 6, "num_hidden_layers": 2, "vocab_size": 256})");
    config["n_group"] = num_groups;
    config["topk_group"] = num_chosen;
    return std::string(ParseStrictly(config).status().message());
  };
  EXPECT_EQ(refusal(4, 2), "");
  EXPECT_THAT(refusal(3, 1), HasSubstr("it must divide the number of experts, 16"));
  EXPECT_THAT(refusal(4, 1), HasSubstr("and at least 2 for num_experts_per_tok, 6"));
  EXPECT_THAT(refusal(4, 5), HasSubstr("topk_group is 5"));
}

}  // namespace
}  // namespace bulkhead
