// The two levels of a multimodal config: which of its fields count, and what is said of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<ParsedConfig> Parse(const json& config, UnknownFields unknown) {
  return ParseModelConfig(config.dump(), "", unknown, AllFamilySpecs());
}

json Multimodal(const char* architecture, const char* model_type, const char* text_type,
                const char* outer) {
  json config = json::parse(outer);
  config["architectures"] = {architecture};
  config["model_type"] = model_type;
  config["text_config"] = json::parse(R"({"hidden_size": 4096, "intermediate_size": 512,
      "num_hidden_layers": 8, "num_attention_heads": 32, "vocab_size": 262144})");
  config["text_config"]["model_type"] = text_type;
  return config;
}

json Mistral(const char* outer) {
  return Multimodal("Mistral3ForConditionalGeneration", "mistral3", "mistral", outer);
}

TEST(TextConfigTest, WhatPublishedConfigsHaveBesideItIsKnown) {
  const json configs[] = {
      Multimodal("Gemma3ForConditionalGeneration", "gemma3", "gemma3_text",
                 R"({"boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
                     "image_token_index": 262144, "initializer_range": 0.02,
                     "mm_tokens_per_image": 256, "torch_dtype": "bfloat16",
                     "transformers_version": "4.50.0", "vision_config": {"hidden_size": 1152}})"),
      Multimodal("Gemma4ForConditionalGeneration", "gemma4", "gemma4_text",
                 R"({"audio_config": {}, "audio_token_id": 258881, "boa_token_id": 256000,
                     "boi_token_id": 255999, "dtype": "bfloat16", "eoa_token_id": 258883,
                     "eoa_token_index": 258883, "eoi_token_id": 258882, "eos_token_id": [1, 106],
                     "image_token_id": 258880, "initializer_range": 0.02,
                     "tie_word_embeddings": true, "video_token_id": 258884, "vision_config": {},
                     "vision_soft_tokens_per_image": 280})"),
      Multimodal("Qwen3_5ForConditionalGeneration", "qwen3_5", "qwen3_5_text",
                 R"({"image_token_id": 248056, "tie_word_embeddings": false,
                     "video_token_id": 248057, "vision_config": {},
                     "vision_end_token_id": 248054, "vision_start_token_id": 248053})"),
      Mistral(R"({"image_token_index": 10, "multimodal_projector_bias": false,
                  "projector_hidden_act": "gelu", "spatial_merge_size": 2, "vision_config": {},
                  "vision_feature_layer": -1})")};
  for (const json& config : configs) {
    EXPECT_TRUE(Parse(config, UnknownFields::kRefuse).ok())
        << Parse(config, UnknownFields::kRefuse).status();
  }
}

TEST(TextConfigTest, AFieldBesideItThatNothingReadsIsSaid) {
  const json config = Mistral(R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})");
  const auto warned = Parse(config, UnknownFields::kWarn);
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_THAT(warned->warnings,
              ElementsAre(HasSubstr("the text part is served"),
                          HasSubstr("rope_scaling (outside text_config) is not a known field; it "
                                    "is ignored")));
  const auto refused = Parse(config, UnknownFields::kRefuse);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("rope_scaling (outside text_config) is not a known field"));
}

TEST(TextConfigTest, ATextOfAnotherFamilyIsRefused) {
  const auto parsed =
      Parse(Multimodal("Mistral3ForConditionalGeneration", "mistral3", "qwen3", "{}"),
            UnknownFields::kWarn);
  EXPECT_TRUE(absl::IsUnimplemented(parsed.status()));
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("text_config.model_type is \"qwen3\", which is not supported; "
                        "Mistral3ForConditionalGeneration supports mistral or ministral3"));
  json silent = Mistral("{}");
  silent["text_config"].erase("model_type");
  EXPECT_TRUE(Parse(silent, UnknownFields::kWarn).ok());
}

TEST(TextConfigTest, EmbeddingsAreTiedWhereItOrTheOuterFieldSaysSo) {
  const auto is_tied = [](const json& config) {
    const auto parsed = Parse(config, UnknownFields::kRefuse);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() && parsed->model.tie_word_embeddings;
  };
  EXPECT_FALSE(is_tied(Mistral("{}")));
  json config = Mistral(R"({"tie_word_embeddings": true})");
  EXPECT_TRUE(is_tied(config));
  config["text_config"]["tie_word_embeddings"] = nullptr;
  EXPECT_TRUE(is_tied(config));
  config["text_config"]["tie_word_embeddings"] = false;  // as transformers 5 writes it
  EXPECT_TRUE(is_tied(config));
  config["tie_word_embeddings"] = false;
  EXPECT_FALSE(is_tied(config));
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(is_tied(config));
  const json gemma = Multimodal("Gemma3ForConditionalGeneration", "gemma3", "gemma3_text",
                                R"({"tie_word_embeddings": false})");
  EXPECT_FALSE(is_tied(gemma));
}

}  // namespace
}  // namespace bulkhead
