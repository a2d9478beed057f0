#include "runtime/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> CallsOf(const ParsedOutput& parsed) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const ToolCall& call : parsed.tool_calls) calls.emplace_back(call.name, call.arguments);
  return calls;
}

TEST(OutputParser, TakesReasoningContentAndCallsOfHermesApart) {
  const ParsedOutput parsed = ParseOutput(Samples()[0].options, Samples()[0].text);
  EXPECT_EQ(parsed.reasoning, "let me see");
  EXPECT_EQ(parsed.content, "Sure.");
  EXPECT_THAT(CallsOf(parsed),
              ElementsAre(Pair("f", "{\"a\": \"}</tool_call>\"}"), Pair("g", "{}")));
  EXPECT_NE(parsed.tool_calls[0].id, parsed.tool_calls[1].id);
  EXPECT_EQ(parsed.tool_calls[0].id.substr(0, 5), "call_");
}

TEST(OutputParser, GivesWhatIsNoCallAsContentWithNothingLost) {
  for (const std::string text :
       {"a < b <tool_call> is a tag, <tool_call>{\"x\": 1}</tool_call> too ",
        "cut <tool_call>{\"name\": \"f\", \"arg", "bad <tool_call>{\"name\": </tool_call> more",
        "<tool_call>{\"name\": 3}</tool_call>", "<tool_call>"}) {
    const ParsedOutput parsed = ParseOutput(With("hermes", ""), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.tool_calls, IsEmpty());
  }
  EXPECT_EQ(ParseOutput(With("llama3_json", ""), "{not json} at all").content, "{not json} at all");
  EXPECT_EQ(ParseOutput(With("mistral", ""), "[TOOL_CALLS] a b {\"c\": 1}").content,
            "[TOOL_CALLS] a b {\"c\": 1}");
  EXPECT_EQ(ParseOutput(With("openai", ""), "a text without channels").content,
            "a text without channels");
}

TEST(OutputParser, ReadsEachFormat) {
  const auto calls = [](const OutputParserOptions& options, const std::string& text) {
    return CallsOf(ParseOutput(options, text));
  };
  const std::vector<Sample> all = Samples();
  EXPECT_THAT(calls(all[7].options, all[7].text),
              ElementsAre(Pair("f", "{\"a\": [1, 2]}"), Pair("g", "{}")));
  EXPECT_THAT(calls(all[8].options, all[8].text), ElementsAre(Pair("f", "{}")));
  EXPECT_THAT(calls(all[10].options, all[10].text),
              ElementsAre(Pair("f", "{\"a\": \"]\"}"), Pair("g", "{}")));
  EXPECT_THAT(calls(all[11].options, all[11].text),
              ElementsAre(Pair("f", "{\"a\": 1}"), Pair("g", "{}")));
  EXPECT_THAT(calls(With("deepseek_v3", ""), kDeepSeekText),
              ElementsAre(Pair("f", "{\"a\": 1}"), Pair("g", "{}")));
  EXPECT_THAT(calls(all[13].options, all[13].text), ElementsAre(Pair("f", "{\"a\": 1}")));
  EXPECT_THAT(calls(all[15].options, all[15].text),
              ElementsAre(Pair("weather", "{\"city\": \"Oslo\"}")));
  EXPECT_EQ(ParseOutput(all[15].options, all[15].text).reasoning, "I should look.");
  const ParsedOutput final = ParseOutput(all[16].options, all[16].text);
  EXPECT_EQ(final.content, "Wait.\nIt is <b>.");
  EXPECT_EQ(final.reasoning, "");
  EXPECT_EQ(ToolCallId("s", 0, /*short_form=*/true).size(), 9u);
}

std::vector<std::pair<std::string, std::string>> CallsOfFormat(const std::string& tool,
                                                               const std::string& text) {
  return CallsOf(ParseOutput(With(tool, ""), text));
}

TEST(OutputParser, ReadsCallsOfGlm) {
  OutputParserOptions options = With("glm45", "glm45");
  ParsedOutput parsed = ParseOutput(options, kGlmText);
  EXPECT_EQ(parsed.content, "I look.");
  // Without a schema values are JSON where they can be.
  EXPECT_THAT(CallsOf(parsed),
              ElementsAre(Pair("get_weather", R"({"city": "Oslo", "days": 3, "zip": "0150"})"),
                          Pair("now", "{}")));
  options.tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {
          "city": {"type": "string"}, "days": {"type": "string"}, "zip": {"type": "integer"}}}}}])");
  EXPECT_EQ(ParseOutput(options, kGlmText).tool_calls[0].arguments,
            R"({"city": "\"Oslo\"\n", "days": "3", "zip": "0150"})");
  const std::string no_call =
      "x <tool_call>is no call</tool_call> <tool_call>f<arg_key>a</arg_key> b";
  EXPECT_EQ(ParseOutput(options, no_call).content, no_call);
  EXPECT_THAT(CallsOfFormat("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1"),
              ElementsAre(Pair("f", "{\"a\": 1")));
}

TEST(OutputParser, ReadsCallsOfKimiWithTheirIds) {
  const ParsedOutput parsed = ParseOutput(With("kimi_k2", ""), kKimiText);
  EXPECT_EQ(parsed.content, "I look.");
  EXPECT_THAT(CallsOf(parsed),
              ElementsAre(Pair("get_weather", R"({"city": "Oslo"})"), Pair("now", "{}")));
  EXPECT_EQ(parsed.tool_calls[0].id, "functions.get_weather:0");
  EXPECT_EQ(parsed.tool_calls[1].id, "functions.now:1");
  const ParsedOutput unnumbered = ParseOutput(
      With("kimi_k2", ""), "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>");
  ASSERT_EQ(unnumbered.tool_calls.size(), 1u);
  EXPECT_EQ(unnumbered.tool_calls[0].id.substr(0, 5), "call_");
}

TEST(OutputParser, EndsBrokenArgumentsWithWhatThereIs) {
  EXPECT_THAT(CallsOfFormat("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [\"cut"),
              ElementsAre(Pair("f", "{\"a\": [\"cut")));
  const ParsedOutput broken = ParseOutput(
      With("hermes", ""), "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": </tool_call>b");
  EXPECT_THAT(CallsOf(broken), ElementsAre(Pair("f", "{\"a\": ")));
  EXPECT_EQ(broken.content, "b");
  const ParsedOutput list = ParseOutput(
      With("mistral", ""), "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"x\": 1}] and");
  EXPECT_THAT(CallsOf(list), ElementsAre(Pair("f", "{}")));
  EXPECT_EQ(list.content, "{\"x\": 1}] and");
  const ParsedOutput tagged = ParseOutput(
      With("qwen3_coder", ""), "<tool_call><function=f><parameter=a>\n1\n\n</parameter> no");
  EXPECT_THAT(CallsOf(tagged), ElementsAre(Pair("f", "{\"a\": \"1\\n\"}")));
  EXPECT_EQ(tagged.content, "no");
}

TEST(OutputParser, ReadsArgumentsBeforeTheNameAndArgumentsInAString) {
  EXPECT_THAT(CallsOfFormat("hermes",
                            "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>"),
              ElementsAre(Pair("f", "{\"a\": 1}")));
  EXPECT_THAT(
      CallsOfFormat("hermes", R"(<tool_call>{"name": "g", "arguments": "{\"b\": 2}"}</tool_call>)"),
      ElementsAre(Pair("g", "{\"b\": 2}")));
  EXPECT_THAT(
      CallsOfFormat("hermes", R"(<tool_call>{"x": {"name": "no"}, "name": "\u0066", "parameters":)"
                              R"( {"name": "}"}, "arguments": {}}</tool_call>)"),
      ElementsAre(Pair("f", R"({"name": "}"})")));
}

// How many characters of a call's arguments have come when all but `left` of the text have.
size_t GivenBefore(const std::string& tool, const std::string& text, size_t left) {
  OutputParser parser(With(tool, ""));
  size_t given = 0;
  for (const ParsedDelta& delta : parser.Append(text.substr(0, text.size() - left))) {
    if (delta.kind == ParsedDelta::Kind::kToolCall) given += delta.text.size();
  }
  return given;
}

TEST(OutputParser, GivesArgumentsAsTheyCome) {
  const std::string words(1000, 'x');
  const std::string object = "{\"a\": \"" + words + "\"}";
  EXPECT_EQ(GivenBefore("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": " + object, 500),
            object.size() - 500);
  EXPECT_EQ(GivenBefore("llama3_json", "{\"name\": \"f\", \"parameters\": " + object, 500),
            object.size() - 500);
  EXPECT_EQ(GivenBefore("mistral", "[TOOL_CALLS]f[ARGS]" + object, 500), object.size() - 500);
  EXPECT_EQ(GivenBefore("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": " + object, 500),
            object.size() - 500);
  EXPECT_EQ(GivenBefore("deepseek_v31", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>" + object, 500),
            object.size() - 500);
  EXPECT_EQ(
      GivenBefore("kimi_k2",
                  "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" + object, 500),
      object.size() - 500);
  EXPECT_EQ(GivenBefore("openai", "<|channel|>commentary to=functions.f<|message|>" + object, 500),
            object.size() - 500);
  EXPECT_EQ(GivenBefore("qwen3_coder", "<tool_call><function=f><parameter=a>\n" + words, 500),
            object.size() - 502);
  OutputParserOptions glm = With("glm45", "");
  glm.tools = nlohmann::ordered_json::parse(
      R"([{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}])");
  OutputParser parser(glm);
  const std::vector<ParsedDelta> deltas =
      parser.Append("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>" + words);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].call_name, "f");
  EXPECT_EQ(deltas[1].text, "{\"a\": \"" + words);
}

TEST(OutputParser, TellsStringsFromOtherValuesByTheSchemaOfQwen3Coder) {
  OutputParserOptions options = With("qwen3_coder", "");
  options.tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}}}])");
  const std::string text = Samples()[14].text;
  EXPECT_THAT(CallsOf(ParseOutput(options, text)),
              ElementsAre(Pair("f", "{\"text\": \"line 1\\nline \\\"2\\\"\", \"n\": 3}")));
  EXPECT_EQ(ParseOutput(options, text).content, "Now.done");
}

TEST(OutputParser, LeavesCallsInTheContentWhereTheRequestHasNoTools) {
  OutputParserOptions options = With("hermes", "");
  options.parse_tool_calls = false;
  const std::string text = "<tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(ParseOutput(options, text).content, text);
}

TEST(OutputParser, FollowsThePromptIntoTheReasoning) {
  EXPECT_EQ(
      ParseOutput(With("", "qwen3", "<|im_start|>assistant\n<think>\n"), "a</think>b").reasoning,
      "a");
  EXPECT_EQ(ParseOutput(With("", "qwen3"), "a</think>b").content, "a</think>b");
  EXPECT_EQ(ParseOutput(With("", "deepseek_r1"), "a</think>b").reasoning, "a");
  EXPECT_EQ(ParseOutput(With("", "qwen3", "<think>\n\n</think>\n\n"), "a").content, "a");
}

TEST(OutputParser, GivesACallBeyondTheLimitAsContent) {
  const std::string text =
      absl::StrCat("<tool_call>{\"name\": \"", std::string(kMaxCallBytes, 'x'), "\"}</tool_call>");
  OutputParser parser(With("hermes", ""));
  size_t bytes = 0;
  const auto count = [&](const std::vector<ParsedDelta>& deltas) {
    for (const ParsedDelta& delta : deltas) {
      EXPECT_EQ(delta.kind, ParsedDelta::Kind::kContent);
      bytes += delta.text.size();
    }
  };
  for (size_t at = 0; at < text.size(); at += 1000) count(parser.Append(text.substr(at, 1000)));
  count(parser.Finish());
  EXPECT_EQ(bytes, text.size());
}

TEST(ChooseOutputFormat, FollowsTheTemplatesText) {
  const auto automatic = [](const std::string& text) {
    return *ChooseOutputFormat("auto", "auto", text);
  };
  EXPECT_EQ(automatic("x <tool_call> <think>").tool, ToolFormat::kHermes);
  EXPECT_EQ(automatic("x <tool_call> <think>").reasoning, ReasoningFormat::kThinkTags);
  EXPECT_EQ(automatic("<tool_call><function=").tool, ToolFormat::kQwen3Coder);
  EXPECT_EQ(automatic("[TOOL_CALLS]").tool, ToolFormat::kMistral);
  EXPECT_EQ(automatic("<|channel|><|message|>").tool, ToolFormat::kHarmony);
  EXPECT_EQ(automatic("<|python_tag|>").tool, ToolFormat::kLlama3Json);
  EXPECT_EQ(automatic("<｜tool▁call▁begin｜>").tool, ToolFormat::kDeepSeek);
  EXPECT_EQ(automatic("<tool_call>{name}\n<arg_key>").tool, ToolFormat::kGlm45);
  EXPECT_EQ(automatic("<|tool_calls_section_begin|><|tool_call_begin|>").tool, ToolFormat::kKimiK2);
  EXPECT_TRUE(NeedsSpecialTokens(automatic("<|tool_call_begin|>")));
  EXPECT_EQ(automatic("plain").tool, ToolFormat::kNone);
  EXPECT_FALSE(NeedsSpecialTokens(automatic("plain")));
  EXPECT_FALSE(NeedsSpecialTokens(automatic("<tool_call> <think>")));
  EXPECT_TRUE(NeedsSpecialTokens(automatic("[TOOL_CALLS]")));
  EXPECT_TRUE(NeedsSpecialTokens(automatic("<|channel|><|message|>")));
  EXPECT_THAT(std::string(ChooseOutputFormat("pythonic", "", "").status().message()),
              ::testing::HasSubstr("hermes"));
  EXPECT_FALSE(ChooseOutputFormat("", "other", "").ok());
  EXPECT_FALSE(ChooseOutputFormat("hermes", "openai_gptoss", "").ok());
}

TEST(OutputParserTest, TextOfHarmonyIsNotLost) {
  const OutputParserOptions options = With("openai", "openai_gptoss");
  EXPECT_EQ(ParseOutput(options, "<|channel|>final<|message|>Hi<|end|> and more").content,
            "Hi and more");
  EXPECT_EQ(ParseOutput(options, "<|channel|>final<|message|>Hi<|end|><|start|>assistant").content,
            "Hi");
  const std::string call =
      "<|channel|>commentary to=functions.f<|message|>" + std::string(kMaxCallBytes, 'x') + "tail";
  const std::string content = ParseOutput(options, call).content;
  EXPECT_EQ(content.size(), kMaxCallBytes + 4);
  EXPECT_TRUE(content.ends_with("xtail"));
}

}  // namespace
}  // namespace bulkhead
