// What is said of fields that no number of ours comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/model_config.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// A small Llama, with `more` in its config.json.
absl::StatusOr<ParsedConfig> Parse(const std::string& more, const std::string& generation = "",
                                   UnknownFields unknown = UnknownFields::kWarn) {
  return ParseModelConfig(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100)" +
                              more + "}",
                          generation, unknown);
}

TEST(FieldPolicyTest, CustomCodeIsNamedAndNotRun) {
  const std::string custom = R"(, "auto_map": {"AutoModelForCausalLM": "modeling_x.X"})";
  const auto parsed = Parse(custom);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("auto_map names custom code")));
  const auto strict = Parse(custom, "", UnknownFields::kRefuse);
  EXPECT_THAT(std::string(strict.status().message()), HasSubstr("auto_map"));
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
