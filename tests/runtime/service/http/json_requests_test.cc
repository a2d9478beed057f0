// Bodies of completions as messages of the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "runtime/service/http/completion_request.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

RequestRules Rules() {
  RequestRules rules;
  rules.max_model_len = 64;
  rules.max_logprobs = 20;
  rules.has_priorities = true;
  return rules;
}

absl::StatusOr<CompletionRequest> Completion(const std::string& fields) {
  absl::StatusOr<Json> body = ParseBody(absl::StrCat("{", fields, "}"));
  if (!body.ok()) return body.status();
  return ReadCompletion(*body, Rules());
}

void ExpectRefused(const absl::Status& status, absl::string_view param, absl::string_view why) {
  ASSERT_FALSE(status.ok()) << param;
  EXPECT_EQ(ReasonOf(status), why) << status;
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"param\":\"", param, "\"")));
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"message\":\"", param, ": ")));
}

// What is copied for each prompt is bounded before.
TEST(CompletionRequest, LongListsAndTextsAreRefusedBeforeTheyAreCopied) {
  std::string ids = "0", biases = "\"0\": 1", words = "\"a\"";
  for (int i = 1; i <= 1024; ++i) {
    absl::StrAppend(&ids, ",", i);
    absl::StrAppend(&biases, ",\"", i, "\": 1");
  }
  for (int i = 0; i < 64; ++i) absl::StrAppend(&words, ",\"a\"");
  const std::string text(300, 'x');
  const std::pair<const char*, std::string> kFields[] = {
      {"allowed_token_ids", absl::StrCat("[", ids, "]")},
      {"logit_bias", absl::StrCat("{", biases, "}")},
      {"bad_words", absl::StrCat("[", words, "]")},
      {"bad_words", absl::StrCat("[\"", text, "\"]")},
      {"stop", absl::StrCat("[\"", text, "\"]")},
      {"cache_salt", absl::StrCat("\"", text, "\"")}};
  for (const auto& [field, value] : kFields) {
    const auto read = Completion(absl::StrCat("\"prompt\": \"a\", \"", field, "\": ", value));
    ExpectRefused(read.status(), field, reason::kInvalidValue);
  }
  EXPECT_EQ(ReasonOf(Completion(R"("prompt": "a", "model": "m")").status()),
            reason::kModelNotFound);
}

TEST(CompletionRequest, EveryFieldHasItsPlace) {
  const auto read = Completion(
      R"("prompt": "a", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9,
         "top_k": 5, "min_p": 0.1, "seed": -1, "stop": ["x", "y"], "stop_token_ids": [1, 2],
         "min_tokens": 3, "ignore_eos": true, "include_stop_str_in_output": true,
         "skip_special_tokens": false, "add_special_tokens": false, "cache_salt": "s",
         "priority": 4, "logprobs": 2, "n": 2, "return_token_ids": true, "stream": true,
         "stream_options": {"include_usage": true, "continuous_usage_stats": true})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->options.n, 2);
  EXPECT_TRUE(read->options.stream && read->options.include_usage &&
              read->options.continuous_usage);
  EXPECT_EQ(read->options.logprobs, 2);
  EXPECT_TRUE(read->options.token_ids);
  ASSERT_EQ(read->prompts.size(), 1U);
  const v1::GenerateRequest& message = read->prompts[0];
  EXPECT_EQ(message.model(), "");
  EXPECT_EQ(message.text(), "a");
  EXPECT_EQ(message.stopping().max_tokens(), 7U);
  EXPECT_EQ(message.stopping().min_tokens(), 3U);
  EXPECT_EQ(message.stopping().stop(1), "y");
  EXPECT_EQ(message.stopping().stop_token_ids(1), 2U);
  EXPECT_TRUE(message.stopping().ignore_eos());
  EXPECT_TRUE(message.stopping().include_stop_in_output());
  EXPECT_FLOAT_EQ(message.sampling().temperature(), 0.5F);
  EXPECT_FLOAT_EQ(message.sampling().top_p(), 0.9F);
  EXPECT_EQ(message.sampling().top_k(), 5U);
  EXPECT_FLOAT_EQ(message.sampling().min_p(), 0.1F);
  EXPECT_EQ(message.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(message.output().logprobs(), 2U);
  EXPECT_TRUE(message.output().prompt_token_ids());
  EXPECT_FALSE(message.output().skip_special_tokens());
  EXPECT_FALSE(message.add_special_tokens());
  EXPECT_EQ(message.cache_salt(), "s");
  EXPECT_EQ(message.priority(), -4) << "lower is earlier here, higher there";
}

TEST(CompletionRequest, WhatIsMissingIsTheServersDefault) {
  const auto read = Completion(R"("prompt": "a", "temperature": null, "stop": null, "top_k": -1)");
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::GenerateRequest& message = read->prompts[0];
  EXPECT_FALSE(message.sampling().has_temperature());
  EXPECT_FALSE(message.sampling().has_seed());
  EXPECT_EQ(message.sampling().top_k(), 0U);
  EXPECT_EQ(message.stopping().max_tokens(), 16U) << "the API's";
  EXPECT_EQ(message.stopping().stop_size(), 0);
}

TEST(CompletionRequest, MinusOneTruncatesThePromptToWhatFits) {
  const auto read = Completion(R"("prompt": "a", "truncate_prompt_tokens": -1)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->prompts[0].truncate_prompt_tokens(), kTruncateToFit);
  ExpectRefused(Completion(R"("prompt": "a", "truncate_prompt_tokens": -2)").status(),
                "truncate_prompt_tokens", reason::kInvalidValue);
}

TEST(CompletionRequest, AnEchoAloneComputesThePromptAndShowsNoLogprobs) {
  const auto read = Completion(R"("prompt": "a", "echo": true, "max_tokens": 0)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->prompts[0].output().has_prompt_logprobs());
  EXPECT_EQ(read->options.logprobs, std::nullopt);
  const auto answers = Completion(R"("prompt": "a", "echo": true, "max_tokens": 1)");
  EXPECT_FALSE(answers->prompts[0].output().has_prompt_logprobs()) << "the prefix cache is used";
}

TEST(CompletionRequest, LogprobsOfThePromptAreAListOfTheirOwn) {
  const auto read = Completion(R"("prompt": "a", "prompt_logprobs": 3, "max_tokens": 0)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->options.prompt_logprobs);
  EXPECT_EQ(read->prompts[0].output().prompt_logprobs(), 3U);
  EXPECT_FALSE(
      Completion(R"("prompt": "a", "echo": true, "logprobs": 1)")->options.prompt_logprobs);
  for (const char* with : {R"("stream": true)", R"("echo": true, "logprobs": 1)"}) {
    ExpectRefused(
        Completion(absl::StrCat(R"("prompt": "a", "prompt_logprobs": 0, )", with)).status(),
        "prompt_logprobs", reason::kInvalidValue);
  }
  ExpectRefused(Completion(R"("prompt": "a", "prompt_logprobs": -1)").status(), "prompt_logprobs",
                reason::kInvalidValue);
}

TEST(CompletionRequest, PromptsAreTextsOrIdsOneOrSeveral) {
  EXPECT_EQ(Completion(R"("prompt": [1, 2])")->prompts.at(0).token_ids().ids(1), 2U);
  EXPECT_EQ(Completion(R"("prompt": ["a", "b"])")->prompts.at(1).text(), "b");
  const auto lists = Completion(R"("prompt": [[1], [2, 3]])");
  EXPECT_EQ(lists->prompts.at(1).token_ids().ids_size(), 2);
  ExpectRefused(Completion(R"("prompt": [[1], "a", {}])").status(), "prompt[2]",
                reason::kInvalidValue);
  ExpectRefused(Completion(R"("prompt": [1, -2])").status(), "prompt", reason::kInvalidValue);
  ExpectRefused(Completion(R"("prompt": 5)").status(), "prompt", reason::kInvalidValue);
  ExpectRefused(Completion("").status(), "prompt", reason::kInvalidValue);
  std::string many = "\"a\"";
  for (int i = 1; i < kMaxChoices; ++i) many += ",\"a\"";
  EXPECT_TRUE(Completion(absl::StrCat("\"prompt\": [", many, "]")).ok());
  ExpectRefused(Completion(absl::StrCat("\"n\": 2, \"prompt\": [", many, "]")).status(), "prompt",
                reason::kInvalidValue);
}

TEST(CompletionRequest, WrongValuesAreNamed) {
  const std::pair<const char*, const char*> kWrong[] = {{"temperature", "\"hot\""},
                                                        {"max_tokens", "65"},
                                                        {"max_tokens", "-1"},
                                                        {"max_tokens", "1.5"},
                                                        {"n", "0"},
                                                        {"n", "129"},
                                                        {"top_k", "-2"},
                                                        {"stop", "[1]"},
                                                        {"stop_token_ids", "[-1]"},
                                                        {"min_tokens", "-1"},
                                                        {"logprobs", "21"},
                                                        {"logprobs", "true"},
                                                        {"stream", "1"},
                                                        {"stream_options", "[]"},
                                                        {"seed", "\"a\""},
                                                        {"priority", "3000000000"},
                                                        {"model", "5"}};
  for (const auto& [name, value] : kWrong) {
    ExpectRefused(Completion(absl::StrCat("\"prompt\": \"a\", \"", name, "\": ", value)).status(),
                  name, reason::kInvalidValue);
  }
}

TEST(CompletionRequest, APriorityNeedsTheSchedulingPolicy) {
  const auto with = [](const char* fields) {
    RequestRules rules = Rules();
    rules.has_priorities = false;
    return ReadCompletion(*ParseBody(absl::StrCat(R"({"prompt": "a", )", fields, "}")), rules)
        .status();
  };
  ExpectRefused(with(R"("priority": 5)"), "priority", reason::kUnsupportedParameter);
  EXPECT_THAT(std::string(with(R"("priority": 5)").message()),
              HasSubstr("--scheduling-policy priority"));
  EXPECT_TRUE(with(R"("priority": 0)").ok());
}

TEST(CompletionRequest, APrioritysRangeIsThatOfItsNegative) {
  const auto with = [](const char* priority) {
    return ReadCompletion(
        *ParseBody(absl::StrCat(R"({"prompt": "a", "priority": )", priority, "}")), Rules());
  };
  EXPECT_TRUE(with("-2147483647").ok());
  EXPECT_TRUE(with("2147483647").ok());
  for (const char* priority : {"-2147483648", "2147483648"}) {
    EXPECT_EQ(
        with(priority).status().message(),
        absl::StrCat("priority: ", priority, " is not a number from -2147483647 to 2147483647"));
  }
}

TEST(CompletionRequest, WhatIsNotSupportedIsRefusedByNameUnlessItHasNoEffect) {
  const std::pair<const char*, const char*> kUnsupported[] = {{"best_of", "3"},
                                                              {"suffix", "\"x\""},
                                                              {"echoo", "true"},
                                                              {"use_beam_search", "true"},
                                                              {"guided_grammar", "\"root ::= 1\""}};
  for (const auto& [name, value] : kUnsupported) {
    ExpectRefused(Completion(absl::StrCat("\"prompt\": \"a\", \"", name, "\": ", value)).status(),
                  name, reason::kUnsupportedParameter);
  }
  EXPECT_TRUE(Completion(R"("prompt": "a", "best_of": 1, "suffix": "", "user": "u", "store": true,
                            "metadata": {"a": "b"}, "response_format": {"type": "text"},
                            "use_beam_search": false, "unknown": null)")
                  .ok());
  ExpectRefused(Completion(R"("prompt": "a", "stream_options": {"x": 1})").status(),
                "stream_options.x", reason::kUnsupportedParameter);
}

v1::StructuredOutput FormOf(const std::string& field) {
  const auto read = Completion(absl::StrCat("\"prompt\": \"a\", ", field));
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->prompts[0].structured() : v1::StructuredOutput();
}

TEST(CompletionRequest, FormsOfAnAnswerHaveTheNamesOfOpenAIAndOfVllm) {
  EXPECT_TRUE(FormOf(R"("response_format": {"type": "json_object"})").json_object());
  EXPECT_EQ(FormOf(R"("response_format": {"type": "json_schema", "json_schema":
                      {"name": "n", "strict": true, "schema": {"type": "null"}}})")
                .json_schema(),
            R"({"type":"null"})");
  EXPECT_EQ(FormOf(R"("structured_outputs": {"json": "{}"})").json_schema(), "{}");
  EXPECT_EQ(FormOf(R"("structured_outputs": {"regex": "a+"})").regex(), "a+");
  EXPECT_TRUE(FormOf(R"("structured_outputs": {"json_object": true})").json_object());
  EXPECT_EQ(FormOf(R"("structured_outputs": {"choice": ["a", "b"]})").choice().texts_size(), 2);
  EXPECT_EQ(
      FormOf(R"("structured_outputs": {"regex": "a", "grammar": null, "disable_fallback": false,
                      "disable_any_whitespace": false, "disable_additional_properties": false})")
          .regex(),
      "a")
      << "vLLM's defaults";
  EXPECT_EQ(FormOf(R"("guided_json": {"type": "null"})").json_schema(), R"({"type":"null"})");
  EXPECT_EQ(FormOf(R"("guided_regex": "a+")").regex(), "a+");
  EXPECT_EQ(FormOf(R"("guided_choice": ["a"])").choice().texts(0), "a");
  EXPECT_FALSE(Completion(R"("prompt": "a", "response_format": {"type": "text"})")
                   ->prompts[0]
                   .has_structured());
}

TEST(CompletionRequest, AGrammarThatIsRefusedIsOfTheFieldOfTheBody) {
  const absl::Status refused =
      InvalidField("structured.json_schema", "JSON schema, #/a: no", reason::kUnsupportedParameter);
  const std::pair<const char*, const char*> fields[] = {
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_object"})", "response_format"},
      {R"("structured_outputs": {"json": "{}"})", "structured_outputs.json"},
      {R"("structured_outputs": {"regex": "a+"})", "structured_outputs.regex"},
      {R"("structured_outputs": {"choice": ["a"]})", "structured_outputs.choice"},
      {R"("guided_json": {})", "guided_json"},
      {R"("guided_regex": "a+")", "guided_regex"},
      {R"("guided_choice": ["a"])", "guided_choice"}};
  for (const auto& [body, field] : fields) {
    const auto read = Completion(absl::StrCat("\"prompt\": \"a\", ", body));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->options.form_field, field);
    ExpectRefused(InFormField(refused, read->options.form_field), field,
                  reason::kUnsupportedParameter);
  }
  const absl::Status busy =
      WithRetryAfter(absl::ResourceExhaustedError("structured.regex: too large"), absl::Seconds(1));
  const absl::Status named = InFormField(busy, "guided_regex");
  EXPECT_EQ(named.message(), "guided_regex: too large");
  EXPECT_EQ(RetryAfter(named), absl::Seconds(1));
  EXPECT_EQ(InFormField(InvalidField("sampling.seed", "no"), "guided_json").message(),
            "sampling.seed: no");
}

TEST(CompletionRequest, WrongFormsAreRefusedByName) {
  const auto refused = [](const std::string& fields, absl::string_view param,
                          absl::string_view why) {
    ExpectRefused(Completion(absl::StrCat("\"prompt\": \"a\", ", fields)).status(), param, why);
  };
  refused(R"("response_format": "json")", "response_format", reason::kInvalidValue);
  refused(R"("response_format": {})", "response_format.type", reason::kInvalidValue);
  refused(R"("response_format": {"type": "xml"})", "response_format.type", reason::kInvalidValue);
  refused(R"("response_format": {"type": "structural_tag"})", "response_format.type",
          reason::kUnsupportedParameter);
  refused(R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
          reason::kInvalidValue);
  refused(R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
          "response_format.json_schema.schema", reason::kInvalidValue);
  refused(R"("response_format": {"type": "json_object", "schema": {}})", "response_format.schema",
          reason::kUnsupportedParameter);
  refused(R"("structured_outputs": {})", "structured_outputs", reason::kInvalidValue);
  refused(R"("structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs",
          reason::kInvalidValue);
  refused(R"("structured_outputs": {"grammar": "a"})", "structured_outputs.grammar",
          reason::kUnsupportedParameter);
  refused(R"("structured_outputs": {"json": {}, "disable_any_whitespace": true})",
          "structured_outputs.disable_any_whitespace", reason::kUnsupportedParameter);
  refused(R"("guided_choice": [])", "guided_choice", reason::kInvalidValue);
  refused(R"("guided_choice": [1])", "guided_choice", reason::kInvalidValue);
  refused(R"("guided_regex": 1)", "guided_regex", reason::kInvalidValue);
  refused(R"("guided_json": 1)", "guided_json", reason::kInvalidValue);
  refused(R"("guided_regex": "a", "response_format": {"type": "json_object"})", "guided_regex",
          reason::kInvalidValue);
}

TEST(CompletionRequest, ABodyThatIsNotAnObjectIsRefused) {
  for (const char* body : {"", "[]", "{\"a\": }", "{\"a\": 1, \"a\": 2}", "{\"a\": \"\xff\"}"}) {
    const absl::Status status = ParseBody(body).status();
    EXPECT_EQ(ReasonOf(status), reason::kMalformedRequest) << body;
    EXPECT_EQ(HttpStatusOf(status), 400);
    EXPECT_TRUE(IsValidUtf8(status.message())) << body;  // it is the answer
  }
  const std::string deep(1000, '[');
  EXPECT_THAT(std::string(ParseBody(absl::StrCat("{\"a\":", deep)).status().message()),
              HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace bulkhead
