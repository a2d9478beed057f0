// What is said of fields that no number of ours comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/family.h"
#include "shard/model_config.h"
#include "tests/support/family_named.h"

namespace bulkhead {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// A small Llama, with `more` in its config.json.
absl::StatusOr<ParsedConfig> Parse(const std::string& more, const std::string& generation = "",
                                   UnknownFields unknown = UnknownFields::kWarn) {
  return ParseModelConfig(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100)" +
                              more + "}",
                          generation, unknown, AllFamilySpecs());
}

TEST(FieldPolicyTest, CustomCodeIsNamedAndNotRun) {
  const std::string custom = R"(, "auto_map": {"AutoModelForCausalLM": "modeling_x.X"})";
  const auto parsed = Parse(custom);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("auto_map names custom code")));
  const auto strict = Parse(custom, "", UnknownFields::kRefuse);
  EXPECT_THAT(std::string(strict.status().message()), HasSubstr("auto_map"));
}

// A family like Llama that multiplies its embeddings, and whose scores may be scaled.
const FamilySpec& ScaledLlama() {
  static const FamilySpec spec = [] {
    FamilySpec scaled = *FamilyNamed("llama");
    scaled.model_type = "scaled_llama";
    scaled.read_config = [](ConfigFields& fields, ModelConfig& config) {
      FamilyNamed("llama")->read_config(fields, config);
      fields.Number("embedding_multiplier", 0, 100);
      fields.RefuseUnlessOff("attention_multiplier");
    };
    return scaled;
  }();
  return spec;
}

TEST(FieldPolicyTest, WhatAFamilyAsksForIsItsOwnBusiness) {
  const std::vector<const FamilySpec*> families = {&ScaledLlama(), FamilyNamed("llama")};
  const auto parse = [&](const std::string& family, const std::string& field) {
    return ParseModelConfig(R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100, "model_type": ")" +
                                family + "\", " + field + "}",
                            "", UnknownFields::kRefuse, families);
  };
  const auto scaled = parse("scaled_llama", R"("embedding_multiplier": 12)");
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_THAT(scaled->fields, Contains("embedding_multiplier=12"));
  EXPECT_EQ(scaled->model.family, families[0]);
  for (const auto& [family, field] : {std::pair{"llama", R"("embedding_multiplier": 12)"},
                                      std::pair{"scaled_llama", R"("attention_multiplier": 12)"},
                                      std::pair{"scaled_llama", R"("residual_multiplier": 12)"}}) {
    EXPECT_TRUE(absl::IsUnimplemented(parse(family, field).status())) << family << " " << field;
  }
}

TEST(FieldPolicyTest, FieldsThatWereReadComeByName) {
  const auto parsed = Parse(R"(, "use_cache": true, "rope_theta": 1e4, "head_dim": null,
      "alibi": false, "rope_scaling": {"rope_type": "linear", "factor": 2.0})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->fields,
              ElementsAre("head_dim=null", "hidden_size=64", "intermediate_size=96",
                          "model_type=\"llama\"", "num_attention_heads=4", "num_hidden_layers=2",
                          "rope_scaling={\"factor\":2.0,\"rope_type\":\"linear\"}",
                          "rope_theta=10000.0", "vocab_size=100"));
}

TEST(FieldPolicyTest, GenerationFieldsThatChangeAnswersAreSaidNotToBeApplied) {
  const auto parsed = Parse("", R"({"stop_strings": ["###"], "suppress_tokens": [1, 2],
      "bad_words_ids": [[7]], "forced_bos_token_id": null, "sequence_bias": {}, "max_length": 4096,
      "max_new_tokens": 256, "early_stopping": true})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(
      parsed->warnings,
      UnorderedElementsAre(HasSubstr("stop_strings is [\"###\"], which is not supported and not"),
                           HasSubstr("suppress_tokens is [1,2], which is not supported"),
                           HasSubstr("bad_words_ids is [[7]], which is not supported"),
                           HasSubstr("max_length is 4096, which is not applied"),
                           HasSubstr("max_new_tokens is 256, which is not applied")));
}

}  // namespace
}  // namespace bulkhead
