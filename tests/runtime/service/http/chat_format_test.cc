// How a chat's answer ends where it holds calls of tools, whole and as events.
#include "runtime/service/http/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/service/http/responses_format.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr char kCall[] = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
constexpr char kCutOff[] = R"(<tool_call>{"name": "f", "arguments": {"a": "x)";

std::string Made(BodyParts parts) {
  std::string out;
  while (!parts.Produce(&out)) {
  }
  return out;
}

PackedMessage Packed(const google::protobuf::Message& message) {
  auto bytes = std::make_shared<const std::string>(message.SerializeAsString());
  return {bytes, *bytes};
}

ChatOutputOptions Hermes(bool several) {
  ChatOutputOptions output;
  output.parser.emplace();
  output.parser->format.tool = ToolFormat::kHermes;
  output.several_tool_calls = several;
  return output;
}

v1::Finished Stopped() {
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_STOP_STRING);
  finished.set_stop_string("y");
  return finished;
}

v1::GenerateResponse WholeOf(const std::string& text, const v1::Finished& finished) {
  v1::GenerateResponse response;
  response.set_text(text);
  *response.mutable_finished() = finished;
  return response;
}

// The finish_reason of an answer of that text; the same whole and as events.
std::string EndOf(const std::string& text, const v1::Finished& finished, bool several = true) {
  const AnswerFrame frame("id", "object", 0, "letters", {});
  ChatFormat whole(frame, frame, {}, Hermes(several), nullptr, 1);
  const json answer = json::parse(Made(whole.Whole({Packed(WholeOf(text, finished))}, {})));
  ChatFormat streamed(frame, frame, {}, Hermes(several), nullptr, 1);
  v1::Delta delta;
  delta.set_text(text);
  Made(*streamed.Delta(0, Packed(delta), {}));
  const std::string events = Made(streamed.Finished(0, finished, {}));
  absl::string_view last = absl::StripSuffix(events, "\n\n");
  last = last.substr(last.rfind("data: ") + 6);
  EXPECT_EQ(json::parse(last)["choices"][0]["finish_reason"],
            answer["choices"][0]["finish_reason"]);
  return answer["choices"][0]["finish_reason"];
}

TEST(ChatFormatTest, ACallThatAStopStringCutsOffIsNoReasonToMakeCalls) {
  EXPECT_EQ(EndOf(kCutOff, Stopped()), "stop");
  EXPECT_EQ(EndOf(absl::StrCat(kCall, kCutOff), Stopped()), "stop");
  EXPECT_EQ(EndOf(kCall, Stopped()), "tool_calls");
  EXPECT_EQ(EndOf(std::string(absl::StripSuffix(kCall, "</tool_call>")), Stopped()), "tool_calls")
      << "whole";
  EXPECT_EQ(EndOf(absl::StrCat(kCall, "and te"), Stopped()), "tool_calls");
  // Behind the arguments nothing of a call is missing.
  for (const char* end : {"}", "}</tool_call>"}) {
    EXPECT_EQ(EndOf(std::string(absl::StripSuffix(kCall, end)), Stopped()), "tool_calls") << end;
  }
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_EOS);
  EXPECT_EQ(EndOf(kCall, finished), "tool_calls");
  finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(EndOf(kCutOff, finished), "length");
}

TEST(ChatFormatTest, ACallThatIsLeftOutCannotBeTheOneThatWasCutOff) {
  EXPECT_EQ(EndOf(absl::StrCat(kCall, kCutOff), Stopped(), /*several=*/false), "tool_calls");
  EXPECT_EQ(EndOf(kCutOff, Stopped(), /*several=*/false), "stop");
}

TEST(ChatFormatTest, ACallWhoseArgumentsAreNoJsonIsNoReasonToMakeCalls) {
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_EOS);
  const std::string begin = R"(<tool_call>{"name": "f", "arguments": {"a": )";
  for (const char* rest : {"1, ", "}}", "True}}", "[1}}}", "\"x\ny\"}}"}) {
    const std::string broken = absl::StrCat(begin, rest, "</tool_call>");
    EXPECT_EQ(EndOf(broken, finished), "stop") << broken;
    EXPECT_EQ(EndOf(absl::StrCat(broken, kCall), finished), "stop") << broken;
    EXPECT_EQ(EndOf(absl::StrCat(kCall, broken), finished, /*several=*/false), "tool_calls");
    finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
    EXPECT_EQ(EndOf(broken, finished), "length") << broken;
    finished.set_reason(v1::FINISH_REASON_EOS);
  }
}

// Special tokens and parts of a character have no text, and a parser holds back what may be a tag.
TEST(ChatFormatTest, ATokenWithoutATextHasAnEvent) {
  const AnswerFrame frame("id", "object", 0, "letters", {});
  for (const bool parses : {false, true}) {
    ChatFormat streamed(frame, frame, {}, parses ? Hermes(true) : ChatOutputOptions(), nullptr, 1);
    v1::Delta delta;
    delta.add_tokens()->set_id(1);
    delta.set_text(parses ? "<tool" : "");
    const std::string event = Made(*streamed.Delta(0, Packed(delta), {}));
    EXPECT_TRUE(absl::StrContains(event, R"("delta":{"role":"assistant"})")) << event;
  }
}

TEST(ChatFormatTest, ReasoningHasBothOfItsNames) {
  const auto thinks = [] {
    ChatOutputOptions output;
    output.parser.emplace();
    output.parser->format.reasoning = ReasoningFormat::kThinkTags;
    return output;
  };
  const AnswerFrame frame("id", "object", 0, "letters", {});
  const std::string text = "<think>a \"b\"</think>c";
  ChatFormat whole(frame, frame, {}, thinks(), nullptr, 1);
  const json message = json::parse(
      Made(whole.Whole({Packed(WholeOf(text, Stopped()))}, {})))["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "a \"b\"");
  EXPECT_EQ(message["reasoning_content"], "a \"b\"");
  ChatFormat streamed(frame, frame, {}, thinks(), nullptr, 1);
  v1::Delta delta;
  delta.set_text(text);
  const std::string events = Made(*streamed.Delta(0, Packed(delta), {}));
  EXPECT_TRUE(absl::StrContains(events, R"("reasoning":"a \"b\"","reasoning_content":"a \"b\"")"))
      << events;
}

std::vector<json> EventsOf(BodyParts parts) {
  std::vector<json> events;
  const std::string text = Made(std::move(parts));
  for (absl::string_view event : absl::StrSplit(text, "\n\n", absl::SkipEmpty())) {
    events.push_back(json::parse(std::string(absl::StripPrefix(event, "data: "))));
  }
  return events;
}

TEST(ChatFormatTest, EachIdIsGivenOnceWhateverBecomesOfItsText) {
  GenerationOptions options;
  options.token_ids = true;
  const AnswerFrame frame("id", "object", 0, "letters", options);
  // More than an event has, and a text that is held back and then a call.
  constexpr int kMany = 5000;
  json want = json::array(), got = json::array();
  v1::GenerateResponse response = WholeOf(kCall, Stopped());
  std::vector<v1::Delta> deltas(2);
  for (int id = 0; id < kMany; ++id) {
    want.push_back(id);
    response.add_tokens()->set_id(static_cast<uint32_t>(id));
    deltas[id < 3 ? 0 : 1].add_tokens()->set_id(static_cast<uint32_t>(id));
  }
  deltas[0].set_text(std::string(kCall).substr(0, 4));
  deltas[1].set_text(std::string(kCall).substr(4));
  v1::TokenIds prompt;
  for (const uint32_t id : {5U, 300U}) {
    prompt.add_ids(id);
    response.mutable_prompt_token_ids()->add_ids(id);
  }
  const PackedMessage packed = Packed(prompt);
  const PackedMessage prompt_ids = {packed.owner,
                                    BytesOf(packed.bytes, v1::TokenIds::kIdsFieldNumber)};

  ChatFormat whole(frame, frame, options, Hermes(true), nullptr, 2);
  const json answer = json::parse(Made(whole.Whole({Packed(response), Packed(response)}, {})));
  EXPECT_EQ(answer["prompt_token_ids"], json({5, 300}));
  EXPECT_EQ(answer["choices"][0]["token_ids"], want);
  EXPECT_EQ(answer["choices"][1]["token_ids"], want);

  ChatFormat second(frame, frame, options, Hermes(true), nullptr, 2);
  const std::vector<json> begun = EventsOf(second.Prompt(1, prompt_ids, {}));
  ASSERT_EQ(begun.size(), 2U) << "choices begin in their order";
  EXPECT_EQ(begun[0]["choices"][0]["index"], 0);

  ChatFormat streamed(frame, frame, options, Hermes(true), nullptr, 1);
  std::vector<json> events = EventsOf(streamed.Prompt(0, prompt_ids, {}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["prompt_token_ids"], json({5, 300}));
  EXPECT_EQ(events[0]["choices"][0]["delta"], json({{"role", "assistant"}, {"content", ""}}));
  for (const v1::Delta& delta : deltas) {
    for (json& event : EventsOf(*streamed.Delta(0, Packed(delta), {}))) events.push_back(event);
  }
  EXPECT_EQ(events[1]["choices"][0]["delta"], json::object()) << "held back";
  EXPECT_EQ(events[1]["choices"][0]["token_ids"], json({0, 1, 2}));
  for (json& event : EventsOf(streamed.Finished(0, Stopped(), {}))) events.push_back(event);
  EXPECT_GT(events.size(), 5U) << "in slices";
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].contains("prompt_token_ids"), i == 0);
    EXPECT_EQ(events[i]["choices"][0]["delta"].contains("role"), i == 0);
    for (const json& id : events[i]["choices"][0]["token_ids"]) got.push_back(id);
  }
  EXPECT_EQ(got, want);
}

TEST(ChatFormatTest, AResponseSaysWhichCallIsIncomplete) {
  ResponsesFormat format("id", R"("id":"id",)", {}, {}, Hermes(true), nullptr);
  const json answer = json::parse(
      Made(format.Whole({Packed(WholeOf(absl::StrCat(kCall, kCutOff), Stopped()))}, {})));
  ASSERT_EQ(answer["output"].size(), 2U);
  EXPECT_EQ(answer["output"][0]["status"], "completed");
  EXPECT_EQ(answer["output"][1]["status"], "incomplete");
}

// The statuses of a response's items, whole and as events.
std::vector<std::string> StatusesOf(const std::string& text, const v1::Finished& finished) {
  ResponsesFormat whole("id", R"("id":"id",)", {}, {}, Hermes(true), nullptr);
  const json answer = json::parse(Made(whole.Whole({Packed(WholeOf(text, finished))}, {})));
  std::vector<std::string> statuses;
  for (const json& item : answer["output"]) statuses.push_back(item["status"]);
  ResponsesFormat streamed("id", R"("id":"id",)", {}, {}, Hermes(true), nullptr);
  v1::Delta delta;
  delta.set_text(text);
  std::string events = Made(*streamed.Delta(0, Packed(delta), {}));
  events += Made(streamed.Finished(0, finished, {}));
  std::vector<std::string> done;
  for (absl::string_view event : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    event.remove_prefix(event.find("data: ") + 6);
    const json data = json::parse(std::string(event));
    if (data["type"] == "response.output_item.done") done.push_back(data["item"]["status"]);
  }
  EXPECT_EQ(done, statuses);
  return statuses;
}

TEST(ChatFormatTest, ACallOfAResponseIsIncompleteWhereItsArgumentsAreNoJson) {
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_EOS);
  const std::string broken = R"(<tool_call>{"name": "f", "arguments": {"a": True}}</tool_call>)";
  using Statuses = std::vector<std::string>;
  EXPECT_EQ(StatusesOf(broken, finished), Statuses{"incomplete"});
  EXPECT_EQ(StatusesOf(absl::StrCat(broken, kCall, "x"), finished),
            (Statuses{"incomplete", "completed", "completed"}));
}

TEST(ChatFormatTest, TheArgumentsOfACallDecideItsStatusWhateverEndedTheAnswer) {
  using Statuses = std::vector<std::string>;
  const std::string call = kCall;
  v1::Finished finished;
  for (const v1::FinishReason reason :
       {v1::FINISH_REASON_EOS, v1::FINISH_REASON_STOP_STRING, v1::FINISH_REASON_MAX_TOKENS}) {
    finished.set_reason(reason);
    for (size_t bytes = call.find("{\"a\"") + 1; bytes <= call.size(); ++bytes) {
      const std::string text = call.substr(0, bytes);
      const bool is_whole = bytes >= call.find("}}") + 1;
      EXPECT_EQ(StatusesOf(text, finished), Statuses{is_whole ? "completed" : "incomplete"})
          << text;
      const std::string end = reason == v1::FINISH_REASON_MAX_TOKENS ? "length"
                              : is_whole                             ? "tool_calls"
                                                                     : "stop";
      EXPECT_EQ(EndOf(text, finished), end) << text;
    }
  }
  EXPECT_EQ(StatusesOf(absl::StrCat(call, "and te"), finished),
            (Statuses{"completed", "incomplete"}));
}

TEST(ChatFormatTest, TheArgumentsOfACallDecideItsStatusInAResponseThatFails) {
  for (const char* text : {kCall, kCutOff}) {
    ResponsesFormat format("id", R"("id":"id",)", {}, {}, Hermes(true), nullptr);
    v1::Delta delta;
    delta.set_text(text);
    Made(*format.Delta(0, Packed(delta), {}));
    const std::string event = Made(format.Failure(absl::UnavailableError("gone")));
    const json data = json::parse(event.substr(event.find("data: ") + 6));
    EXPECT_EQ(data["response"]["output"][0]["status"], text == kCall ? "completed" : "incomplete");
  }
}

// OpenAI's client puts choices into a list in the order of their first events.
TEST(ChatFormatTest, ChoicesBeginInTheirOrder) {
  const AnswerFrame frame("id", "object", 0, "letters", {});
  ChatFormat format(frame, frame, {}, ChatOutputOptions(), nullptr, 4);
  v1::Delta delta;
  delta.set_text("a");
  std::vector<std::string> begun;
  std::string events = Made(*format.Delta(2, Packed(delta), {}));
  events += Made(*format.Delta(0, Packed(delta), {}));
  events += Made(format.Finished(3, Stopped(), {}));
  for (const absl::string_view event : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    const json choice = json::parse(absl::StripPrefix(event, "data: "))["choices"][0];
    if (choice["delta"].contains("role")) begun.push_back(choice["index"].dump());
  }
  EXPECT_THAT(begun, testing::ElementsAre("0", "1", "2", "3")) << events;
}

}  // namespace
}  // namespace bulkhead
