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
  const auto drafts = [](const std::string& more) { return *ParseSpeculativeConfig(Config(more)); };
  EXPECT_EQ(drafts(""), (NgramDrafts{7, 5, 5}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_max": 4)"), (NgramDrafts{7, 4, 4}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_min": 3)"), (NgramDrafts{7, 3, 3}));
  EXPECT_EQ(drafts(R"(, "prompt_lookup_max": 4, "prompt_lookup_min": 2)"), (NgramDrafts{7, 4, 2}));
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
  EXPECT_EQ(given.engine.drafts, (NgramDrafts{7, 5, 5}));
  EXPECT_EQ(Parsed<ServeOptions>({"serve", "m"}).engine.drafts, NgramDrafts{});
}

}  // namespace
}  // namespace bulkhead
