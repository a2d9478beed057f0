// Requests: prompt log probabilities, truncation, time limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kModelLen = 64;
const LetterTokenizer kTokenizer;

RequestRules Rules() {
  RequestRules rules;
  rules.tokenizer = &kTokenizer;
  rules.served_model_names = {"letters", "alphabet"};
  rules.vocab_size = LetterTokenizer::kVocabSize;
  rules.max_model_len = kModelLen;
  return rules;
}

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

v1::GenerateRequest Ids(const std::vector<uint32_t>& ids) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  return request;
}

// The request, which must be valid.
Request Built(const v1::GenerateRequest& message, const RequestRules& rules = Rules()) {
  absl::StatusOr<Request> request = BuildRequest(message, rules);
  EXPECT_TRUE(request.ok()) << request.status() << " for " << message.ShortDebugString();
  return request.ok() ? *std::move(request) : Request();
}

// Refused as INVALID_ARGUMENT in `field`, with every text of `says` in the message.
void ExpectRefused(const v1::GenerateRequest& message, const std::string& field,
                   const std::vector<std::string>& says, const RequestRules& rules = Rules()) {
  const absl::Status status = BuildRequest(message, rules).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message.ShortDebugString();
  EXPECT_NE(ReasonOf(status), "");
  EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  for (const std::string& text : says) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  google::rpc::BadRequest bad;
  const google::rpc::Status rpc = ToRpcStatus(status);
  for (const auto& detail : rpc.details()) detail.UnpackTo(&bad);
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), field);
}

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
