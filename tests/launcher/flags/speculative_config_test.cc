#include "launcher/flags/speculative_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

// An object with `more` behind the method and the number of tokens.
std::string Config(const std::string& more, const std::string& tokens = "7") {
  return absl::StrCat(R"({"method": "ngram", "num_speculative_tokens": )", tokens, more, "}");
}

TEST(SpeculativeConfigTest, WhatIsNotGivenIsAsInVllm) {
  const auto drafts = [](const std::string& more) {
    return ParseSpeculativeConfig(Config(more))->drafts;
  };
  EXPECT_EQ(drafts(""), (DraftOptions{7, 5, 5}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_max": 4)"), (DraftOptions{7, 4, 4}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_min": 3)"), (DraftOptions{7, 3, 3}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_max": 4, "prompt_lookup_min": 2)"), (DraftOptions{7, 4, 2}));
}

TEST(SpeculativeConfigTest, ADraftModelNeedsNoMethod) {
  for (const char* method : {"", R"("method": "draft_model", )"}) {
    const auto config = ParseSpeculativeConfig(
        absl::StrCat("{", method, R"("model": "a/b", "num_speculative_tokens": 3})"));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->model, "a/b");
    EXPECT_EQ(config->drafts, (DraftOptions{3, 0, 0}));
  }
  EXPECT_EQ(*ParseSpeculativeConfig(" null\n"), SpeculativeConfig{});
}

TEST(SpeculativeConfigTest, TheModelsMtpLayerNeedsTheNumberOfTokensAlone) {
  const auto config = ParseSpeculativeConfig(R"({"method": "mtp", "num_speculative_tokens": 2})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->drafts, (DraftOptions{.num_speculative_tokens = 2, .mtp = true}));
  EXPECT_EQ(config->model, "");
  EXPECT_TRUE(config->by_model());
  EXPECT_FALSE(ParseSpeculativeConfig(Config(""))->by_model());
}

TEST(SpeculativeConfigTest, RefusalsNameTheValueAndWhatIsPossible) {
  struct BadConfig {
    std::string text;
    std::vector<std::string> says;
  };
  const std::vector<BadConfig> cases = {
      {"ngram", {"JSON object"}},
      {R"({"method": "eagle"})", {"method: \"eagle\"", "\"ngram\""}},
      {R"({"num_speculative_tokens": 3})", {"method: missing"}},
      {R"({"method": "ngram"})", {"num_speculative_tokens", "1 to 16"}},
      {Config("", "17"), {"num_speculative_tokens: 17", "from 1 to 16"}},
      {Config("", "0"), {"num_speculative_tokens: 0", "from 1 to 16"}},
      {Config("", "-1"), {"num_speculative_tokens: -1", "from 1 to 16"}},
      {Config("", "18446744073709551615"), {"18446744073709551615", "from 1 to 16"}},
      {Config("", "2.5"), {"num_speculative_tokens: 2.5", "whole number"}},
      {Config(R"(, "prompt_lookup_min": 0)"), {"prompt_lookup_min: 0", "from 1 to 16"}},
      {Config(R"(, "prompt_lookup_max": 2, "prompt_lookup_min": 3)"),
       {"prompt_lookup_min: 3 is more than prompt_lookup_max, 2"}},
      {R"({"method": "ngram", "draft_tensor_parallel_size": 1})",
       {"unknown key 'draft_tensor_parallel_size'", "prompt_lookup_max, prompt_lookup_min"}},
      {Config(R"(, "model": "a")"), {"model: not for the method ngram"}},
      {R"({"model": "a"})", {"num_speculative_tokens is missing"}},
      {R"({"method": "draft_model", "num_speculative_tokens": 3})", {"model: missing"}},
      {R"({"model": "", "num_speculative_tokens": 3})", {"model: \"\"", "--model"}},
      {R"({"model": 7, "num_speculative_tokens": 3})", {"model: 7"}},
      {R"({"model": "a", "num_speculative_tokens": 3, "prompt_lookup_max": 2})",
       {"prompt_lookup_max: not for the method draft_model"}},
      {R"({"method": "eagle", "model": "a"})", {"method: \"eagle\"", "\"draft_model\"", "\"mtp\""}},
      {R"({"method": "mtp"})", {"num_speculative_tokens is missing"}},
      {R"({"method": "mtp", "model": "a", "num_speculative_tokens": 1})",
       {"model: not for the method mtp"}},
      {R"({"method": "mtp", "prompt_lookup_max": 2, "num_speculative_tokens": 1})",
       {"prompt_lookup_max: not for the method mtp"}},
  };
  for (const BadConfig& bad : cases) {
    const absl::Status status = ParseSpeculativeConfig(bad.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    for (const std::string& says : bad.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(says)) << bad.text;
    }
  }
}

TEST(SpeculativeConfigTest, TheFlagReachesItsFieldAndIsOffByDefault) {
  const auto given = Parsed<ServeOptions>({"serve", "m", "--speculative-config", Config("")});
  EXPECT_EQ(given.engine.speculative, (SpeculativeConfig{{7, 5, 5}, ""}));
  EXPECT_EQ(Parsed<ServeOptions>({"serve", "m"}).engine.speculative, SpeculativeConfig{});
}

}  // namespace
}  // namespace bulkhead
