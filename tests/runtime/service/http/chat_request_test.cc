// Bodies of chats as conversations and messages of the public API.
#include "runtime/service/http/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

RequestRules Rules() {
  RequestRules rules;
  rules.max_model_len = 64;
  return rules;
}

absl::StatusOr<ChatCompletionRequest> Chat(const std::string& fields) {
  absl::StatusOr<Json> body = ParseBody(absl::StrCat("{", fields, "}"));
  if (!body.ok()) return body.status();
  return ReadChat(*std::move(body), Rules());
}

std::string ChatWith(const std::string& fields) {
  return absl::StrCat(R"("messages": [{"role": "user", "content": "a"}], )", fields);
}

void ExpectRefused(const absl::Status& status, absl::string_view param, absl::string_view why) {
  ASSERT_FALSE(status.ok()) << param;
  EXPECT_EQ(ReasonOf(status), why) << status;
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"param\":\"", param, "\"")));
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"message\":\"", param, ": ")));
}

TEST(ChatCompletionRequest, RolesAreChecked) {
  for (const char* role : {"system", "developer", "user", "assistant", "tool"}) {
    EXPECT_TRUE(
        Chat(absl::StrCat(R"("messages": [{"role": ")", role, R"(", "content": "a"}])")).ok());
  }
  ExpectRefused(Chat(R"("messages": [{"role": "user"}, {"role": "ghost"}])").status(),
                "messages[1].role", reason::kInvalidValue);
  ExpectRefused(Chat(R"("messages": [{"content": "a"}])").status(), "messages[0].role",
                reason::kInvalidValue);
  ExpectRefused(Chat(R"("messages": [])").status(), "messages", reason::kInvalidValue);
  ExpectRefused(Chat(R"("messages": "a")").status(), "messages", reason::kInvalidValue);
  ExpectRefused(Chat("").status(), "messages", reason::kInvalidValue);
}

TEST(ChatCompletionRequest, FieldsOfChatsHaveTheirPlace) {
  const auto read = Chat(ChatWith(
      R"("max_completion_tokens": 5, "logprobs": true, "top_logprobs": 3,
         "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false},
         "parallel_tool_calls": false, "include_reasoning": false)"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->common.stopping().max_tokens(), 5U);
  EXPECT_EQ(read->common.output().logprobs(), 3U);
  EXPECT_FALSE(read->common.add_special_tokens()) << "the template prints BOS";
  EXPECT_EQ(read->chat.template_kwargs["reasoning_effort"], "low");
  EXPECT_EQ(read->chat.template_kwargs["enable_thinking"], false);
  EXPECT_TRUE(read->chat.add_generation_prompt);
  EXPECT_FALSE(read->several_tool_calls);
  EXPECT_FALSE(read->includes_reasoning);
  EXPECT_FALSE(read->parses_tool_calls) << "there are no tools";
  EXPECT_FALSE(Chat(ChatWith(R"("a": null)"))->common.stopping().has_max_tokens());
  ExpectRefused(Chat(ChatWith(R"("top_logprobs": 3)")).status(), "top_logprobs",
                reason::kInvalidValue);
  ExpectRefused(
      Chat(ChatWith(R"("add_generation_prompt": true, "continue_final_message": true)")).status(),
      "continue_final_message", reason::kInvalidValue);
}

TEST(ChatCompletionRequest, ToolsMayBeCalledOrNot) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  EXPECT_TRUE(Chat(ChatWith(tools))->parses_tool_calls);
  EXPECT_TRUE(Chat(ChatWith(tools + R"(, "tool_choice": "auto")"))->parses_tool_calls);
  const auto none = Chat(ChatWith(tools + R"(, "tool_choice": "none")"));
  EXPECT_FALSE(none->parses_tool_calls);
  EXPECT_TRUE(none->chat.tools.is_null());
  EXPECT_EQ(Chat(ChatWith(tools + R"(, "tool_choice": "required")"))->wanted_tool, "");
  const auto tool = [](const char* function) {
    return Chat(
        ChatWith(absl::StrCat(R"("tools": [{"type": "function", "function": )", function, "}]")));
  };
  EXPECT_TRUE(tool(R"({"name": "f", "parameters": {}})").ok());
  ExpectRefused(tool(R"({"name": ""})").status(), "tools[0].function.name", reason::kInvalidValue);
  EXPECT_TRUE(tool(R"({"name": "f", "parameters": {"type": ["object", "null"]}})").ok());
  for (const char* parameters : {"true", "[]", R"({"type": "string"})", R"({"type": ["null"]})",
                                 R"({"type": 1})", R"({"type": null})"}) {
    ExpectRefused(
        tool(absl::StrCat(R"({"name": "f", "parameters": )", parameters, "}").c_str()).status(),
        "tools[0].function.parameters", reason::kInvalidValue);
  }
  const auto choice = [&](const char* value) {
    return Chat(ChatWith(absl::StrCat(tools, ", \"tool_choice\": ", value)));
  };
  EXPECT_EQ(choice(R"({"type": "function", "function": {"name": "f"}})")->wanted_tool, "f");
  ExpectRefused(choice(R"({"type": "function", "function": {"name": "g"}})").status(),
                "tool_choice.function.name", reason::kInvalidValue);
  ExpectRefused(choice(R"({"type": "function"})").status(), "tool_choice.function.name",
                reason::kInvalidValue);
  ExpectRefused(choice(R"({"type": "custom"})").status(), "tool_choice.type",
                reason::kUnsupportedParameter);
  ExpectRefused(choice(R"("always")").status(), "tool_choice", reason::kInvalidValue);
  ExpectRefused(Chat(ChatWith(R"("tool_choice": "required")")).status(), "tool_choice",
                reason::kInvalidValue);
  const auto forced = choice(R"("required", "response_format": {"type": "json_object"})");
  ASSERT_TRUE(forced.ok()) << forced.status();
  EXPECT_EQ(forced->wanted_tool, "");
  EXPECT_FALSE(forced->common.has_structured()) << "the call is the answer, as in vLLM";
  const absl::Status two = choice(R"("required", "guided_regex": "a")").status();
  ExpectRefused(two, "tool_choice", reason::kInvalidValue);
  EXPECT_THAT(std::string(two.message()), HasSubstr("excludes guided_regex"));
  // The form of an answer leaves no place for calls, which would take JSON for one of theirs.
  EXPECT_FALSE(choice(R"("auto", "response_format": {"type": "json_object"})")->parses_tool_calls);
  ExpectRefused(Chat(ChatWith(R"("tools": [{"type": "retrieval"}])")).status(), "tools[0].type",
                reason::kUnsupportedParameter);
  ExpectRefused(Chat(ChatWith(R"("tools": [{"type": "function"}])")).status(),
                "tools[0].function.name", reason::kInvalidValue);
}

TEST(ChatCompletionRequest, WhatIsNotSupportedIsRefusedByName) {
  for (const char* name : {"audio", "functions", "function_call", "chat_template", "verbosity"}) {
    ExpectRefused(Chat(ChatWith(absl::StrCat("\"", name, "\": {}"))).status(), name,
                  reason::kUnsupportedParameter);
  }
  ExpectRefused(Chat(ChatWith(R"("prompt_logprobs": 1)")).status(), "prompt_logprobs",
                reason::kUnsupportedParameter);
  ExpectRefused(Chat(ChatWith(R"("modalities": ["text", "audio"])")).status(), "modalities",
                reason::kUnsupportedParameter);
  // As what changes nothing they are taken.
  const auto taken = Chat(ChatWith(
      R"("functions": [], "function_call": "none", "verbosity": "medium", "modalities": ["text"],
         "mm_processor_kwargs": {}, "vllm_xargs": {}, "detokenize": true)"));
  EXPECT_TRUE(taken.ok()) << taken.status();
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    const absl::Status none = Chat(ChatWith(absl::StrCat("\"", name, "\": 0"))).status();
    ExpectRefused(none, name, reason::kInvalidValue);
    EXPECT_THAT(std::string(none.message()), HasSubstr("0 is not at least 1"));
  }
}

}  // namespace
}  // namespace bulkhead
