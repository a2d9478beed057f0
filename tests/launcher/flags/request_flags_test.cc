#include "launcher/flags/request_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;

TEST(RequestFlagsTest, GenerateTakesWhatChangesLogits) {
  const auto request = Parsed<GenerateOptions>({"generate",
                                                "one",
                                                "--repetition-penalty",
                                                "1.5",
                                                "--presence-penalty",
                                                "-2",
                                                "--frequency-penalty",
                                                "0.5",
                                                "--logit-bias",
                                                "7=-100",
                                                "--logit-bias",
                                                "9=0.5",
                                                "--allowed-token-ids",
                                                "7",
                                                "--allowed-token-ids",
                                                "9",
                                                "--bad-words",
                                                "a, b",
                                                "--json",
                                                "--prompt-logprobs",
                                                "2",
                                                "--truncate-prompt-tokens",
                                                "5",
                                                "--time-limit-ms",
                                                "900"})
                           .request;
  EXPECT_EQ(request.repetition_penalty, 1.5F);
  EXPECT_EQ(request.presence_penalty, -2.0F);
  EXPECT_EQ(request.frequency_penalty, 0.5F);
  EXPECT_THAT(request.logit_bias, ElementsAre(std::pair(7U, -100.0F), std::pair(9U, 0.5F)));
  EXPECT_THAT(request.allowed_token_ids, ElementsAre(7, 9));
  EXPECT_THAT(request.bad_words, ElementsAre("a, b"));
  EXPECT_EQ(request.prompt_logprobs, 2U);
  EXPECT_EQ(request.truncate_prompt_tokens, 5U);
  EXPECT_EQ(request.time_limit_ms, 900U);
}

}  // namespace
}  // namespace bulkhead
