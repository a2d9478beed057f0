#include "launcher/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GenerateRequest Line(const std::string& line, const RequestOptions& flags = {}) {
  const absl::StatusOr<v1::GenerateRequest> request = ParsePromptLine(line, RequestOf(flags));
  EXPECT_TRUE(request.ok()) << request.status() << "\n" << line;
  return request.value_or(v1::GenerateRequest());
}

std::string Refusal(const std::string& line) {
  const absl::StatusOr<v1::GenerateRequest> request = ParsePromptLine(line, v1::GenerateRequest());
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(request.status().message());
}

PromptLines FileOf(const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/prompts_", getpid());
  std::ofstream(path) << text;
  const absl::StatusOr<PromptLines> lines = ReadPrompts(path, v1::GenerateRequest());
  EXPECT_TRUE(lines.ok()) << lines.status();
  return lines.value_or(PromptLines());
}

TEST(PromptsTest, EveryKeyReachesItsField) {
  const v1::GenerateRequest request = Line(
      R"({"prompt": "text", "request_id": "r", "model": "m", "max_tokens": 3, "min_tokens": 2, "temperature": 0.5,
          "top_p": 0.9, "top_k": 20, "min_p": 0.1, "seed": 18446744073709551615, "stop": ["a", "b"],
          "stop_token_ids": [5], "ignore_eos": true, "include_stop_in_output": true, "add_special_tokens": false,
          "skip_special_tokens": false, "logprobs": 4, "priority": -7,
          "cache_salt": "tenant", "repetition_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.25,
          "logit_bias": {"7": -100, "9": 0.5}, "allowed_token_ids": [7, 9], "bad_words": ["no"],
          "prompt_logprobs": 2, "truncate_prompt_tokens": 8, "time_limit_ms": 900})");
  EXPECT_EQ(request.text(), "text");
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.stopping().max_tokens(), 3U);
  EXPECT_EQ(request.stopping().min_tokens(), 2U);
  EXPECT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_EQ(request.sampling().top_p(), 0.9F);
  EXPECT_EQ(request.sampling().top_k(), 20U);
  EXPECT_EQ(request.sampling().min_p(), 0.1F);
  EXPECT_EQ(request.sampling().seed(), ~uint64_t{0});
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "b"));
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(5));
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_TRUE(request.stopping().include_stop_in_output());
  EXPECT_FALSE(request.add_special_tokens());
  EXPECT_FALSE(request.output().skip_special_tokens());
  EXPECT_EQ(request.output().logprobs(), 4U);
  EXPECT_EQ(request.priority(), -7);
  EXPECT_EQ(request.cache_salt(), "tenant");
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.5F);
  EXPECT_EQ(request.sampling().presence_penalty(), -0.5F);
  EXPECT_EQ(request.sampling().frequency_penalty(), 0.25F);
  EXPECT_EQ(request.sampling().logit_bias().size(), 2);
  EXPECT_EQ(request.sampling().logit_bias().at(7), -100.0F);
  EXPECT_EQ(request.sampling().logit_bias().at(9), 0.5F);
  EXPECT_THAT(request.sampling().allowed_token_ids(), ElementsAre(7, 9));
  EXPECT_THAT(request.sampling().bad_words(), ElementsAre("no"));
  EXPECT_EQ(request.output().prompt_logprobs(), 2U);
  EXPECT_EQ(request.truncate_prompt_tokens(), 8U);
  EXPECT_EQ(request.time_limit_ms(), 900U);
}

TEST(PromptsTest, AnyOtherLogitBiasIsRefused) {
  EXPECT_THAT(Refusal(R"({"prompt": "a", "logit_bias": [1]})"), HasSubstr("must be an object"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "logit_bias": {"x": 1}})"),
              HasSubstr("logit_bias.x: the key is not a token id"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "logit_bias": {"1": "x"}})"),
              HasSubstr("logit_bias.1 must be a number"));
}

TEST(PromptsTest, WhatIsNotGivenStaysUnset) {
  const v1::GenerateRequest request =
      Line(R"({"prompt_token_ids": [1, 2, 4294967295], "seed": null})");
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(1U, 2U, 4294967295U));
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.sampling().has_seed());
  EXPECT_FALSE(request.stopping().has_max_tokens());
  EXPECT_FALSE(request.has_priority());
  EXPECT_FALSE(request.has_cache_salt());
}

TEST(PromptsTest, ALineWinsOverAFlag) {
  RequestOptions flags;
  flags.temperature = 0.7F;
  flags.max_tokens = 9;
  flags.stop = {"flag"};
  flags.stop_token_ids = {1};
  flags.add_special_tokens = false;
  const auto request =
      Line(R"({"prompt": "p", "temperature": 0, "stop": "line", "stop_token_ids": []})", flags);
  EXPECT_TRUE(request.sampling().has_temperature());
  EXPECT_EQ(request.sampling().temperature(), 0.0F);
  EXPECT_EQ(request.stopping().max_tokens(), 9U);
  EXPECT_THAT(request.stopping().stop(), ElementsAre("line"));
  EXPECT_EQ(request.stopping().stop_token_ids_size(), 0);
  EXPECT_TRUE(request.has_add_special_tokens());
  // Special tokens only apply to text.
  EXPECT_FALSE(Line(R"({"prompt_token_ids": [1]})", flags).has_add_special_tokens());
}

TEST(PromptsTest, ABadLineNamesWhatIsBad) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"hello", "not JSON"},
      {"{\"prompt\": \"\xff\"}", "not JSON"},
      {R"({"prompt": "p", "temperature": 1e999})", "not JSON"},
      {R"({"prompt": "p", "temperature": NaN})", "not JSON"},
      {R"(["prompt"])", "object"},
      {R"("prompt")", "object"},
      {"{}", "prompt_token_ids"},
      {R"({"max_tokens": 1})", "prompt_token_ids"},
      {R"({"prompt": null})", "prompt_token_ids"},
      {R"({"prompt": "p", "prompt_token_ids": [1]})", "one of"},
      {R"({"prompt": 5})", "prompt must be a string"},
      {R"({"prompt_token_ids": "1"})", "prompt_token_ids must be a list"},
      {R"({"prompt_token_ids": [1, 4294967296]})",
       "prompt_token_ids[1] 4294967296 is out of range"},
      {R"({"prompt_token_ids": [-1]})", "prompt_token_ids[0] -1 is out of range"},
      {R"({"prompt_token_ids": [1.5]})", "prompt_token_ids[0] must be a whole number"},
      {R"({"prompt_token_ids": [[1]]})", "prompt_token_ids[0] must be a whole number"},
      {R"({"prompt": "p", "max_tokens": -1})", "max_tokens -1 is out of range"},
      {R"({"prompt": "p", "max_tokens": 4294967297})", "max_tokens 4294967297"},
      {R"({"prompt": "p", "max_tokens": 18446744073709551616})", "max_tokens"},
      {R"({"prompt": "p", "max_tokens": "8"})", "max_tokens must be a whole number"},
      {R"({"prompt": "p", "max_tokens": true})", "max_tokens must be a whole number"},
      {R"({"prompt": "p", "seed": -1})", "seed -1"},
      {R"({"prompt": "p", "temperature": "hot"})", "temperature must be a number"},
      {R"({"prompt": "p", "temperature": 1e300})", "temperature"},
      {R"({"prompt": "p", "top_p": [0.5]})", "top_p must be a number"},
      {R"({"prompt": "p", "stop": 5})", "stop must be"},
      {R"({"prompt": "p", "stop": ["a", 5]})", "stop[1] must be a string"},
      {R"({"prompt": "p", "text": true})", "unknown key text"},
      {R"({"prompt": "p", "embedding": true})", "unknown key embedding"},
      {R"({"prompt": "p", "sampling": {}})", "unknown key sampling"},
      {R"({"prompt": "p", "ignore_eos": 1})", "ignore_eos must be true or false"},
      {R"({"prompt": "p", "priority": 2147483648})", "priority 2147483648"},
      {R"({"prompt": "p", "priority": -2147483649})", "priority -2147483649"},
      {R"({"prompt": "p", "max_token": 5})", "unknown key max_token"},
      {R"({"messages": [{"role": "user", "content": "p"}]})", "chat templates are not applied"},
  };
  for (const auto& [line, says] : cases) EXPECT_THAT(Refusal(line), HasSubstr(says)) << line;
}

TEST(PromptsTest, AnAnswersFormOverridesThatOfTheFlags) {
  RequestOptions flags;
  flags.choice = {"a", "b"};
  EXPECT_EQ(Line(R"({"prompt": "p"})", flags).structured().choice().texts_size(), 2);
  EXPECT_EQ(Line(R"({"prompt": "p", "regex": "a+"})", flags).structured().regex(), "a+");
  EXPECT_EQ(Line(R"({"prompt": "p", "choice": ["c"]})", flags).structured().choice().texts(0), "c");
  EXPECT_EQ(Line(R"({"prompt": "p", "json_schema": {"type": "null"}})").structured().json_schema(),
            R"({"type":"null"})");
  EXPECT_EQ(Line(R"({"prompt": "p", "json_schema": "{}"})").structured().json_schema(), "{}");
  EXPECT_TRUE(Line(R"({"prompt": "p", "json_object": true})").structured().json_object());
  EXPECT_FALSE(Line(R"({"prompt": "p", "json_object": false})").has_structured());
  EXPECT_FALSE(Line(R"({"prompt": "p"})").has_structured());
  EXPECT_THAT(Refusal(R"({"prompt": "p", "regex": 1})"), HasSubstr("regex must be a string"));
  EXPECT_THAT(Refusal(R"({"prompt": "p", "choice": [1]})"), HasSubstr("choice must be a list"));
  std::string deep = "{\"prompt\": \"p\", \"json_schema\": {\"a\":";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}}";
  EXPECT_THAT(Refusal(deep), HasSubstr("64 levels"));
}

TEST(PromptsTest, HostileLinesEndInShortMessages) {
  EXPECT_LT(
      Refusal(absl::StrCat(R"({"prompt": "p", ")", std::string(1 << 20, 'k'), R"(": 1})")).size(),
      200U);
  EXPECT_THAT(Refusal(std::string(1 << 20, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal(absl::StrCat(R"({"prompt": )", std::string(1 << 20, '['),
                                   std::string(1 << 20, ']'), "}")),
              HasSubstr("prompt must be a string"));
}

TEST(PromptsTest, ABadLineLeavesTheOthersAlone) {
  const PromptLines prompts = FileOf("{\"prompt\": \"a\"}\n\n  \nnonsense\r\n{\"prompt\": \"c\"}");
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_TRUE(prompts[0].request.ok());
  EXPECT_EQ(prompts[1].request.status(),
            absl::InvalidArgumentError("line 4: the line is not JSON"));
  EXPECT_EQ(prompts[2].request->text(), "c");
  EXPECT_EQ(prompts[2].number, 5);
}

TEST(PromptsTest, AFileWithoutALineInOrderIsRefusedAndAnotherWarnedOf) {
  const auto check = [](const std::string& text) { return CheckLines("--prompts", FileOf(text)); };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(check("").ok());
  EXPECT_TRUE(check("{\"prompt\": \"a\"}\n").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(check("{\"prompt\": \"a\"}\nnonsense\n{}\n").ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("--prompts: line 2: the line is not JSON (2 of 3 broken); their results"));
  const absl::Status none = check("\nnonsense\n{}\n");
  EXPECT_EQ(ExitCodeOf(none), ExitCode::kUsage);
  EXPECT_EQ(none.message(), "--prompts: line 2: the line is not JSON (no line is in order)");
}

TEST(PromptsTest, ATextThatIsNoStringIsCalledText) {
  const std::string path = testing::TempDir() + "/texts";
  std::ofstream(path) << "{\"text\": 3}\n";
  const absl::StatusOr<PromptLines> texts = ReadTexts(path);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->front().request.status().message(), "line 1: text must be a string");
}

TEST(PromptsTest, ALineMayNameTheModel) {
  EXPECT_EQ(ParsePromptLine(R"({"prompt": "a", "model": "sql"})", {})->model(), "sql");
  const std::string path = testing::TempDir() + "/texts_of_models";
  std::ofstream(path) << R"({"text": "a", "model": "sql"})";
  EXPECT_EQ(ReadTexts(path)->front().request->model(), "sql");
}

TEST(PromptsTest, WhatIsSaidOfAPromptNamesItsLineUnlessItHasNone) {
  EXPECT_EQ(AtLine(7, absl::OutOfRangeError("too long")),
            absl::OutOfRangeError("line 7: too long"));
  EXPECT_EQ(AtLine(0, absl::OutOfRangeError("too long")), absl::OutOfRangeError("too long"));
  EXPECT_EQ(AtLine(7, absl::OkStatus()), absl::OkStatus());
}

TEST(PromptsTest, APromptThatIsNotUtf8IsRefusedHere) {
  EXPECT_TRUE(TextRequest("gr\xc3\xbc\xc3\x9f", {}).ok());
  const auto refused = TextRequest("gr\xfc\xdf", {});  // Latin-1
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("not valid UTF-8"));
}

TEST(PromptsTest, AFileThatCannotBeReadIsNamed) {
  for (const std::string& path : {::testing::TempDir() + "no-such-file", ::testing::TempDir()}) {
    const absl::StatusOr<PromptLines> prompts = ReadPrompts(path, v1::GenerateRequest());
    ASSERT_FALSE(prompts.ok()) << path;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr(path));
    EXPECT_EQ(ExitCodeOf(prompts.status()), ExitCode::kUsage);
  }
}

v1::Token TokenOf(uint32_t id) {
  v1::Token token;
  token.set_id(id);
  return token;
}

TEST(PromptsTest, AResultIsOneLineOfTheDocumentedKeys) {
  GenerationResult result;
  result.index = 2;
  result.prompt_token_ids = {1, 2};
  result.tokens = {TokenOf(7), TokenOf(8)};
  result.text = "a\n\"b\"";
  result.seed = ~uint64_t{0};
  result.finish_reason = v1::FINISH_REASON_MAX_TOKENS;
  EXPECT_EQ(ResultLine(result),
            R"({"index":2,"prompt_token_ids":[1,2],"token_ids":[7,8],"text":"a\n\"b\"",)"
            R"("finish_reason":"length","seed":18446744073709551615})");
}

TEST(PromptsTest, AFailureKeepsWhatHadArrived) {
  GenerationResult result;
  result.index = 3;
  result.tokens = {TokenOf(7)};
  result.text = "par";
  result.status = absl::UnavailableError("rank 1 on node2 was lost");
  EXPECT_EQ(ResultLine(result),
            R"({"index":3,"token_ids":[7],"text":"par",)"
            R"("error":{"code":"UNAVAILABLE","message":"rank 1 on node2 was lost"}})");
}

TEST(PromptsTest, LogprobsAreWrittenWhenAskedFor) {
  GenerationResult result;
  result.tokens = {TokenOf(7)};
  result.tokens[0].set_logprob(-0.5F);
  v1::TokenLogprob& top = *result.tokens[0].add_top();
  top.set_id(9);
  top.set_logprob(-std::numeric_limits<float>::infinity());
  EXPECT_THAT(ResultLine(result), ::testing::Not(HasSubstr("logprobs")));
  result.wants_logprobs = true;
  const json line = json::parse(ResultLine(result));
  EXPECT_EQ(line["logprobs"][0]["logprob"], -0.5);
  EXPECT_EQ(line["logprobs"][0]["top"][0]["id"], 9);
  EXPECT_TRUE(line["logprobs"][0]["top"][0]["logprob"].is_null());
}

TEST(PromptsTest, PromptLogprobsAreWrittenIfThereAreAny) {
  GenerationResult result;
  EXPECT_FALSE(json::parse(ResultLine(result)).contains("prompt_logprobs"));
  result.prompt_logprobs = {TokenOf(7), TokenOf(8)};
  result.prompt_logprobs[1].set_rank(3);
  const json line = json::parse(ResultLine(result));
  ASSERT_EQ(line["prompt_logprobs"].size(), 2);
  EXPECT_EQ(line["prompt_logprobs"][1]["rank"], 3);
}

TEST(PromptsTest, TextThatIsNoUtf8IsStillAnAnswer) {
  GenerationResult result;
  result.text = "a\xc3";
  EXPECT_EQ(json::parse(ResultLine(result))["text"], "a\xef\xbf\xbd");
}

TEST(PromptsTest, FinishReasonsAreStopLengthOrTimeLimit) {
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_TIME_LIMIT), "time_limit");
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_EOS), "stop");
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_STOP_TOKEN), "stop");
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_STOP_STRING), "stop");
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_MAX_TOKENS), "length");
  EXPECT_EQ(FinishReasonText(v1::FINISH_REASON_MODEL_LENGTH), "length");
}

}  // namespace
}  // namespace bulkhead
