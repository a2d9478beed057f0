// Bodies of /v1/responses as those of chats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/responses_request.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

absl::StatusOr<ResponsesRequest> Read(const std::string& fields) {
  absl::StatusOr<Json> body = ParseBody(absl::StrCat("{", fields, "}"));
  if (!body.ok()) return body.status();
  RequestRules rules;
  rules.max_model_len = 64;
  rules.max_logprobs = 20;
  return ReadResponses(*std::move(body), rules);
}

std::string MessagesOf(const std::string& fields) {
  const auto read = Read(fields);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->chat.chat.messages.dump() : "";
}

void ExpectRefused(const std::string& fields, absl::string_view param, absl::string_view why) {
  const absl::Status status = Read(fields).status();
  ASSERT_FALSE(status.ok()) << fields;
  EXPECT_EQ(ReasonOf(status), why) << status;
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"param\":\"", param, "\"")));
  EXPECT_THAT(ErrorJson(status, 400), HasSubstr(absl::StrCat("\"message\":\"", param, ": ")));
}

TEST(ResponsesRequest, ATextIsAUsersMessageAndInstructionsAreTheSystems) {
  EXPECT_EQ(MessagesOf(R"("input": "hi", "instructions": "be brief")"),
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
}

TEST(ResponsesRequest, ItemsAreTheMessagesOfAChat) {
  EXPECT_EQ(MessagesOf(R"("input": [
        {"role": "developer", "content": "d"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [],
         "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "id": "m", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "2"}, {"type": "input_text", "text": "3"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"}])"),
            R"([{"role":"developer","content":"d"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"1"},)"
            R"({"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"},)"
            R"({"type":"text","text":"3"}]},)"
            R"({"role":"assistant","content":null,"tool_calls":[)"
            R"({"id":"c3","type":"function","function":{"name":"f","arguments":"{}"}}]}])");
}

TEST(ResponsesRequest, ARefusalIsTheAssistantsText) {
  EXPECT_EQ(MessagesOf(R"("input": [{"type": "message", "id": "m", "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}]}])"),
            R"([{"role":"assistant","content":"no"}])");
  ExpectRefused(
      R"("input": [{"role": "assistant", "content": [{"type": "refusal", "text": "no"}]}])",
      "input[0].content[0].refusal", reason::kInvalidValue);
}

TEST(ResponsesRequest, WhatIsRepeatedEndsNoLineOfAStream) {
  const auto read = Read("\"input\": \"a\", \"instructions\": \"b\xE2\x80\xA8\"");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->echo, HasSubstr(R"("instructions":"b\u2028")"));
}

TEST(ResponsesRequest, EveryFieldHasItsPlace) {
  const auto read = Read(R"("input": "a", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.9,
      "seed": 3, "stream": true, "stream_options": {"include_obfuscation": false},
      "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}}],
      "tool_choice": "auto", "parallel_tool_calls": false, "reasoning": {"effort": "low", "context": "auto", "mode": "standard"},
      "text": {"format": {"type": "text"}, "verbosity": "medium"}, "store": true, "request_id": "r", "session_id": "s",
      "metadata": {"k": "v"}, "truncation": "disabled", "include": ["reasoning.encrypted_content"], "user": "u",
      "background": false, "prompt_cache_options": {"ttl": "30m"}, "previous_response_id": null, "top_logprobs": 0,
      "enable_response_messages": false, "previous_input_messages": [], "vllm_xargs": {}, "mm_payload": null)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->chat.common.stopping().max_tokens(), 7U);
  EXPECT_FLOAT_EQ(read->chat.common.sampling().temperature(), 0.5F);
  EXPECT_EQ(read->chat.common.sampling().seed(), 3U);
  EXPECT_TRUE(read->chat.options.stream);
  EXPECT_EQ(read->chat.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{}}}])");
  EXPECT_TRUE(read->chat.parses_tool_calls);
  EXPECT_FALSE(read->chat.several_tool_calls);
  EXPECT_EQ(read->chat.chat.template_kwargs["reasoning_effort"], "low");
  const Json echo = Json::parse(absl::StrCat("{", read->echo, "\"end\":0}"));
  EXPECT_EQ(echo["metadata"]["k"], "v");
  EXPECT_EQ(echo["store"], false) << "nothing is stored";
  EXPECT_EQ(echo["max_output_tokens"], 7);
  EXPECT_EQ(echo["tools"][0]["name"], "f");
  EXPECT_EQ(echo["reasoning"]["effort"], "low");
  EXPECT_EQ(echo["instructions"], nullptr);
}

TEST(ResponsesRequest, WhatNeedsAStoreOrIsNotSupportedIsRefusedByName) {
  const std::pair<const char*, const char*> kUnsupported[] = {
      {"previous_response_id", "\"resp_1\""},
      {"conversation", "\"c\""},
      {"background", "true"},
      {"include", "[\"file_search_call.results\"]"},
      {"truncation", "\"auto\""},
      {"top_logprobs", "3"},
      {"max_tool_calls", "2"},
      {"prompt", "{\"id\": \"p\"}"},
      {"messages", "[]"},
      {"max_tokens", "3"},
      {"n", "2"},
      {"inputs", "1"}};
  for (const auto& [name, value] : kUnsupported) {
    ExpectRefused(absl::StrCat("\"input\": \"a\", \"", name, "\": ", value), name,
                  reason::kUnsupportedParameter);
  }
  EXPECT_THAT(std::string(Read(R"("input": "a", "enable_thinking": false)").status().message()),
              HasSubstr("write chat_template_kwargs"));
  ExpectRefused(R"("input": "a", "tools": [{"type": "web_search"}])", "tools[0].type",
                reason::kUnsupportedParameter);
  ExpectRefused(R"("input": "a", "reasoning": {"summary": "detailed"})", "reasoning.summary",
                reason::kUnsupportedParameter);
  ExpectRefused(R"("input": "a", "text": {"verbosity": "low"})", "text.verbosity",
                reason::kUnsupportedParameter);
  ExpectRefused(R"("input": [{"type": "item_reference", "id": "i"}])", "input[0].type",
                reason::kUnsupportedParameter);
  ExpectRefused(
      R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
      "input[0].content[0].type", reason::kUnsupportedParameter);
  ExpectRefused(R"("input": [{"type": "reasoning", "encrypted_content": "x"}])",
                "input[0].encrypted_content", reason::kUnsupportedParameter);
}

TEST(ResponsesRequest, WrongValuesAreNamedAsTheClientNamesThem) {
  ExpectRefused(R"("instructions": "a")", "input", reason::kInvalidValue);
  ExpectRefused(R"("input": [])", "input", reason::kInvalidValue);
  ExpectRefused(R"("input": 5)", "input", reason::kInvalidValue);
  ExpectRefused(R"("input": "a", "max_output_tokens": 65)", "max_output_tokens",
                reason::kInvalidValue);
  ExpectRefused(R"("input": "a", "metadata": {"a": 5})", "metadata", reason::kInvalidValue);
  ExpectRefused(R"("input": "a", "reasoning": {"effort": 5})", "reasoning.effort",
                reason::kInvalidValue);
  ExpectRefused(R"("input": [{"role": "tool", "content": "a"}])", "input[0].role",
                reason::kInvalidValue);
  ExpectRefused(R"("input": [{"role": "user"}])", "input[0].content", reason::kInvalidValue);
  ExpectRefused(R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])",
                "input[0].content[0].text", reason::kInvalidValue);
  ExpectRefused(R"("input": [{"type": "function_call", "name": "f", "arguments": "{}"}])",
                "input[0].call_id", reason::kInvalidValue);
  ExpectRefused(R"("input": [{"type": "function_call_output", "call_id": "c"}])", "input[0].output",
                reason::kInvalidValue);
}

}  // namespace
}  // namespace bulkhead
