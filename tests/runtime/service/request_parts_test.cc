// Requests: prompt log probabilities, truncation, time limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "tests/runtime/service/request_checks.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RequestPartsTest, PromptLogprobsAreBoundedAndLetARequestGenerateNothing) {
  v1::GenerateRequest message = Text("ab");
  message.mutable_output()->set_prompt_logprobs(20);
  EXPECT_EQ(Built(message).num_prompt_logprobs, 20);
  message.mutable_output()->set_prompt_logprobs(21);
  ExpectRefused(message, "output.prompt_logprobs", {"21", "20"});
  message.mutable_output()->set_prompt_logprobs(0);
  message.mutable_stopping()->set_max_tokens(0);
  EXPECT_EQ(Built(message).stopping.max_tokens, 0);
  EXPECT_EQ(Built(message).num_prompt_logprobs, 0);
  message.set_text(std::string(kModelLen - 1, 'a'));  // with BOS it is the whole model
  EXPECT_EQ(Built(message).prompt.size(), kModelLen);
  message.mutable_output()->clear_prompt_logprobs();
  ExpectRefused(message, "stopping.max_tokens", {"0", "prompt_logprobs"});
}

TEST(RequestPartsTest, TruncationKeepsTheLastTokens) {
  v1::GenerateRequest message = Text("abcdef");
  message.set_truncate_prompt_tokens(3);
  EXPECT_THAT(Built(message).prompt, ElementsAre('d', 'e', 'f'));
  message.set_truncate_prompt_tokens(kModelLen - 1);
  EXPECT_EQ(Built(message).prompt.size(), 7);
  message.set_text(std::string(500, 'a') + "z");
  const Request cut = Built(message);
  EXPECT_EQ(cut.prompt.size(), kModelLen - 1);
  EXPECT_EQ(cut.prompt.back(), 'z');
  v1::GenerateRequest ids = Ids(std::vector<uint32_t>(200, 7));
  ids.set_truncate_prompt_tokens(2);
  EXPECT_THAT(Built(ids).prompt, ElementsAre(7, 7));
  for (const uint32_t bad : {0, kModelLen}) {
    ids.set_truncate_prompt_tokens(bad);
    ExpectRefused(ids, "truncate_prompt_tokens", {std::to_string(bad), "[1, 63]"});
  }
}

TEST(RequestPartsTest, TruncationToWhatFitsLeavesTheAnswersTokens) {
  v1::GenerateRequest message = Text(std::string(500, 'a') + "z");
  message.set_truncate_prompt_tokens(kTruncateToFit);
  EXPECT_EQ(Built(message).prompt.size(), kModelLen - 1) << "at least one token is answered";
  for (const uint32_t max_tokens : {1, 16, kModelLen - 1}) {
    message.mutable_stopping()->set_max_tokens(max_tokens);
    const Request cut = Built(message);
    EXPECT_EQ(cut.prompt.size(), kModelLen - max_tokens);
    EXPECT_EQ(cut.prompt.back(), 'z');
  }
  message.mutable_stopping()->set_max_tokens(kModelLen);
  ExpectRefused(message, "truncate_prompt_tokens", {"max_tokens 64", "max_model_len 64"});
  message.mutable_stopping()->set_max_tokens(0);
  message.mutable_output()->set_prompt_logprobs(0);
  EXPECT_EQ(Built(message).prompt.size(), kModelLen) << "nothing is answered";
  v1::GenerateRequest fits = Text("abc");
  fits.set_truncate_prompt_tokens(kTruncateToFit);
  EXPECT_EQ(Built(fits).prompt.size(), 4) << "with <s>";
}

TEST(RequestPartsTest, ATimeLimitIsAtLeastAMillisecond) {
  v1::GenerateRequest message = Text("ab");
  EXPECT_FALSE(Built(message).time_limit_ms.has_value());
  message.set_time_limit_ms(std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(Built(message).time_limit_ms, std::numeric_limits<uint32_t>::max());
  message.set_time_limit_ms(0);
  ExpectRefused(message, "time_limit_ms", {"0"});
}

}  // namespace
}  // namespace bulkhead
