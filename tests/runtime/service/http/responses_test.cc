// Answers of /v1/responses, whole and as events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/service/refusal.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Prompts of one letter; answers with reasoning and calls.
class ResponsesTest : public HttpServerTest {
 protected:
  ResponsesTest() { BeginWith("{% if tools %}{% endif %}{{ messages[0].content }}"); }

  void BeginWith(const std::string& chat_template) {
    core_->Stop(absl::ZeroDuration());
    server_->Shutdown(absl::Seconds(1));
    auto parsed = ChatTemplate::Parse(chat_template, "a test");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    auto parts = MakeChatParts(*std::move(parsed), "hermes", "qwen3");
    EXPECT_TRUE(parts.ok()) << parts.status();
    server_ = nullptr;
    Begin(Quotas(), std::make_shared<const ChatParts>(*std::move(parts)));
  }

  static constexpr char kTools[] = R"("tools": [{"type": "function", "name": "f"}])";
  static constexpr char kText[] =
      "<think>hm \"so\"</think>yes<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
      "1}}</tool_call>";

  // Token by token, as far as the model's length allows.
  static void SendText(const Submitted& submitted, const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      submitted.Send(i, {text[i]}, text.substr(i, 1));
    }
  }

  // The data of all events, whose first lines name their types.
  static std::vector<json> Events(HttpClient& client) {
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_THAT(head, HasSubstr("text/event-stream"));
    std::string text;
    for (;;) {
      const std::string size = client.ReadUntil("\r\n");
      const size_t bytes = std::stoul(size, nullptr, 16);
      std::string chunk;
      while (chunk.size() < bytes + 2) {
        const std::string line = client.ReadUntil("\n");
        if (line.empty()) break;
        chunk += line;
      }
      if (bytes == 0) break;
      text += chunk.substr(0, bytes);
    }
    std::vector<json> events;
    for (const absl::string_view event : absl::StrSplit(text, "\n\n", absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> lines =
          absl::StrSplit(event, absl::MaxSplits('\n', 1));
      EXPECT_TRUE(absl::StartsWith(lines.second, "data: ")) << event;
      events.push_back(json::parse(lines.second.substr(6), nullptr, false));
      EXPECT_EQ(lines.first, absl::StrCat("event: ", events.back()["type"].get<std::string>()));
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }
};

TEST_F(ResponsesTest, WhatDevelopersSayIsTheSystemsWhereTheTemplateDoesNotKnowThem) {
  const std::string text =
      "{# a developer's word #}{% for m in messages %}{% if m.role == 'ROLE' %}{{ m.content }}"
      "{% endif %}{% endfor %}";
  for (const char* role : {"system", "developer"}) {
    BeginWith(absl::StrReplaceAll(text, {{"ROLE", role}}));
    const auto client = Connect();
    client->Post("/v1/chat/completions",
                 R"({"messages": [{"role": "developer", "content": "a"}]})");
    const Submitted submitted = engine_.Next();
    EXPECT_EQ(submitted.request.prompt.back(), 'a') << role;
    submitted.Finish(FinishReason::kMaxTokens, 0);
    EXPECT_EQ(Answered(*client).first, 200);
  }
}

TEST_F(ResponsesTest, AStreamBuildsUpTheSameItemsAsAWholeAnswer) {
  json answers[2];
  for (const bool streams : {false, true}) {
    const auto client = Connect();
    client->Post("/v1/responses", absl::StrCat(R"({"input": "a", "stream": )",
                                               streams ? "true, " : "false, ", kTools, "}"));
    const Submitted submitted = engine_.Next();
    EXPECT_TRUE(absl::StartsWith(submitted.request.request_id, "resp_"));
    // The call's text in one piece: there are only 63 tokens.
    const std::string text = kText;
    const size_t call = text.find("<tool_call>");
    SendText(submitted, text.substr(0, call));
    submitted.Send(call, {'x'}, text.substr(call));
    submitted.Finish(FinishReason::kEos, static_cast<int>(call) + 1);
    if (!streams) {
      const auto [status, answer] = Answered(*client);
      ASSERT_EQ(status, 200) << answer;
      answers[0] = answer;
      continue;
    }
    std::vector<std::string> types;
    std::string reasoning, content, arguments;
    for (const json& event : Events(*client)) {
      const std::string type = event["type"];
      if (types.empty() || types.back() != type) types.push_back(type);
      if (type == "response.reasoning_text.delta") reasoning += event["delta"];
      if (type == "response.output_text.delta") content += event["delta"];
      if (type == "response.function_call_arguments.delta") arguments += event["delta"];
      if (type == "response.output_item.added") {
        EXPECT_EQ(event["item"]["status"], "in_progress");
      }
      if (type == "response.completed") answers[1] = event["response"];
    }
    EXPECT_THAT(
        types, ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                           "response.content_part.added", "response.reasoning_text.delta",
                           "response.reasoning_text.done", "response.content_part.done",
                           "response.output_item.done", "response.output_item.added",
                           "response.content_part.added", "response.output_text.delta",
                           "response.output_text.done", "response.content_part.done",
                           "response.output_item.done", "response.output_item.added",
                           "response.function_call_arguments.delta",
                           "response.function_call_arguments.done", "response.output_item.done",
                           "response.completed"));
    EXPECT_EQ(reasoning, "hm \"so\"");
    EXPECT_EQ(content, "yes");
    EXPECT_EQ(json::parse(arguments)["a"], 1);
  }
  const json& output = answers[0]["output"];
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0]["text"], "hm \"so\"");
  EXPECT_EQ(output[1]["content"][0]["text"], "yes");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(answers[0]["status"], "completed");
  EXPECT_EQ(answers[0]["usage"]["input_tokens"], 1);
  EXPECT_EQ(answers[0]["usage"]["output_tokens"], 26);
  // <think>hm "so"</think> has 22 letters; the other 4 tokens are text and call.
  EXPECT_EQ(answers[0]["usage"]["output_tokens_details"]["reasoning_tokens"], 22);
  EXPECT_EQ(answers[0]["usage"], answers[1]["usage"]);
  for (size_t i = 0; i < 3; ++i) {
    json streamed = answers[1]["output"][i], whole = output[i];
    for (const char* const name : {"id", "call_id"}) {
      streamed.erase(name);
      whole.erase(name);
    }
    EXPECT_EQ(streamed, whole);
  }
}

TEST_F(ResponsesTest, AnAnswerWithoutATextHasAnEmptyMessage) {
  for (const bool was_cut_off : {false, true}) {
    json answers[2];
    for (const bool streams : {false, true}) {
      const auto client = Connect();
      client->Post("/v1/responses",
                   absl::StrCat(R"({"input": "a", "stream": )", streams ? "true}" : "false}"));
      engine_.Next().Finish(was_cut_off ? FinishReason::kMaxTokens : FinishReason::kEos, 1);
      answers[streams] = streams ? Events(*client).back()["response"] : Answered(*client).second;
      ASSERT_EQ(answers[streams]["output"].size(), 1U) << answers[streams];
      answers[streams]["output"][0].erase("id");
    }
    const json& message = answers[0]["output"][0];
    EXPECT_EQ(message["type"], "message");
    EXPECT_EQ(message["status"], was_cut_off ? "incomplete" : "completed");
    EXPECT_EQ(message["content"][0]["text"], "");
    EXPECT_EQ(answers[1]["output"], answers[0]["output"]);
  }
}

TEST_F(ResponsesTest, AnAnswerThatIsCutOffIsIncomplete) {
  const auto client = Connect();
  client->Post("/v1/responses",
               R"({"input": "a", "stream": true, "max_output_tokens": 3, "instructions": null})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.stopping.max_tokens, 3);
  SendText(submitted, "yes");
  submitted.Finish(FinishReason::kMaxTokens, 3);
  const json last = Events(*client).back();
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_EQ(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(last["response"]["usage"]["input_tokens_details"]["cache_write_tokens"], 0);
}

TEST_F(ResponsesTest, AFailureBehindTheFirstEventIsAnEventToo) {
  const auto client = Connect();
  client->Post("/v1/responses", R"({"input": "a", "stream": true})");
  const Submitted submitted = engine_.Next();
  SendText(submitted, "ye");
  submitted.Fail(WithReason(absl::UnavailableError("rank 1 is gone"), reason::kRankLost));
  const json last = Events(*client).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["code"], reason::kRankLost);
  EXPECT_EQ(last["response"]["output"][0]["content"][0]["text"], "ye");
}

TEST_F(ResponsesTest, WhatAStreamKeepsIsPartOfTheAnswers) {
  const auto client = Connect();
  client->Post("/v1/responses", R"({"input": "a", "stream": true})");
  const Submitted submitted = engine_.Next();
  const std::string text(200'000, 'x');
  submitted.Send(0, {'x'}, text);
  WaitUntil([&] { return core_->host.answer_bytes.now() > 200'000; });
  submitted.Finish(FinishReason::kEos, 1);
  const std::vector<json> events = Events(*client);
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"], text);
}

TEST_F(ResponsesTest, ARefusalIsAnErrorOfTheClientsField) {
  const auto [status, answer] = Ask("/v1/responses", R"({"input": "a", "background": true})");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["param"], "background");
}

TEST_F(ResponsesTest, AnInputThatIsTooLongIsNamedInTheWordsOfOpenAI) {
  const auto [status, answer] = Ask(
      "/v1/responses", absl::StrCat(R"({"input": ")", std::string(kTestModelLen, 'a'), R"("})"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["param"], "input");
  EXPECT_EQ(answer["error"]["code"], "context_length_exceeded");
  const std::string message = answer["error"]["message"];
  EXPECT_THAT(message, testing::StartsWith("input: the prompt is too long: "));
  EXPECT_THAT(message, HasSubstr(absl::StrCat("tokens; this model's maximum context length is ",
                                              kTestModelLen, " tokens")));
}

TEST_F(ResponsesTest, ALimitOfTheAnswerIsNamedInNoOtherRoutesWords) {
  const auto [status, answer] =
      Ask("/v1/responses", R"({"input": "a", "max_output_tokens": 4, "min_tokens": 9})");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["message"],
            "min_tokens: 9 is more than the 4 tokens that the answer may have; lower it, or allow "
            "more tokens");
}

TEST_F(ResponsesTest, ToolsThatTheTemplateDoesNotTakeAreRefused) {
  BeginWith("{{ messages[0].content }}");
  const auto [status, answer] =
      Ask("/v1/responses", absl::StrCat(R"({"input": "a", )", kTools, "}"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["param"], "tools");
  const auto client = Connect();
  client->Post("/v1/responses",
               absl::StrCat(R"({"input": "a", "tool_choice": "none", )", kTools, "}"));
  engine_.Next().Finish(FinishReason::kEos, 1);
  EXPECT_EQ(Answered(*client).first, 200);
}

}  // namespace
}  // namespace bulkhead
