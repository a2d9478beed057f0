#include "runtime/chat/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/chat/output_parser.h"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> CallsOfFormat(const std::string& tool,
                                                               const std::string& text) {
  return CallsOf(ParseOutput(With(tool, ""), text));
}

TEST(ToolCallParserTest, ReadsEachFormat) {
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

TEST(ToolCallParserTest, TheBeginningOfAnEndMarkerIsNoContent) {
  const std::string whole = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  for (size_t bytes = whole.find("</"); bytes <= whole.size(); ++bytes) {
    const ParsedOutput parsed = ParseOutput(With("hermes", ""), whole.substr(0, bytes));
    EXPECT_EQ(parsed.content, "") << bytes;
    EXPECT_THAT(CallsOf(parsed), ElementsAre(Pair("f", "{}")));
  }
}

TEST(ToolCallParserTest, ReadsCallsOfGlm) {
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

TEST(ToolCallParserTest, ReadsCallsOfKimiWithTheirIds) {
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

TEST(ToolCallParserTest, ReadsCallsOfSeedAndMiniMaxByTheirSchemas) {
  const auto tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {
          "city": {"type": "string"}, "days": {"type": "integer"}}}}}])");
  for (const auto& [format, text] :
       {std::pair("seed_oss", kSeedText), std::pair("minimax_m2", kMiniMaxText)}) {
    OutputParserOptions options = With(format, format);
    options.tools = tools;
    const ParsedOutput parsed = ParseOutput(options, text);
    EXPECT_TRUE(NeedsTools(options.format));
    EXPECT_EQ(parsed.reasoning, "I look.") << format;
    EXPECT_EQ(parsed.content, "Sure.") << format;
    EXPECT_THAT(CallsOf(parsed),
                ElementsAre(Pair("get_weather", R"({"city": "Oslo \"N\"\n", "days": 3})"),
                            Pair("now", "{}")))
        << format;
  }
}

TEST(ToolCallParserTest, ACallOfMiniMaxThatIsNoneBehindAnotherIsContent) {
  const std::string call = "<minimax:tool_call><invoke name=\"f\"></invoke>";
  for (const std::string text : {"<invoke nam", "<invoke name=\"a b\">", "<invoke name=\"g\""}) {
    const ParsedOutput parsed = ParseOutput(With("minimax_m2", ""), call + text);
    EXPECT_THAT(CallsOf(parsed), ElementsAre(Pair("f", "{}"))) << text;
    EXPECT_EQ(parsed.content, text);
  }
}

TEST(ToolCallParserTest, ReadsListsOfGraniteAndCohere) {
  const auto calls = ElementsAre(Pair("get_weather", R"({"city": "Oslo"})"), Pair("now", "{}"));
  const ParsedOutput granite = ParseOutput(With("granite", ""), kGraniteText);
  EXPECT_EQ(granite.content, "Sure.");
  EXPECT_THAT(CallsOf(granite), calls);
  const ParsedOutput cohere = ParseOutput(With("cohere_command3", "cohere_command3"), kCohereText);
  EXPECT_EQ(cohere.reasoning, "I look.");
  EXPECT_EQ(cohere.content, "");
  EXPECT_THAT(CallsOf(cohere), calls);
  EXPECT_THAT(CallsOfFormat("hermes", R"(<tool_call>{"tool_name": "f", "parameters": {}})"),
              ElementsAre());
  // Special tokens of answers without calls, which are shown for the sake of others.
  for (const auto& [tool, reasoning] :
       {std::pair("cohere_command3", ""), std::pair("", "cohere_command3")}) {
    EXPECT_EQ(
        ParseOutput(With(tool, reasoning), "<|START_RESPONSE|>Hi <b>.<|END_RESPONSE|>").content,
        "Hi <b>.");
  }
}

TEST(ToolCallParserTest, ReadsCallsOfGemma) {
  const ParsedOutput parsed = ParseOutput(With("gemma4", "gemma4"), kGemmaText);
  EXPECT_EQ(parsed.reasoning, "I look.");
  EXPECT_EQ(parsed.content, "Sure.");
  EXPECT_THAT(
      CallsOf(parsed),
      ElementsAre(Pair("get_weather", R"({"at": {"lat": 59.9, "names": ["a:\"{b", null, []]}, )"
                                      R"("city": "Oslo, N\n", "ok": true})"),
                  Pair("now", "{}")));
  const auto arguments = [](const std::string& text) {
    const ParsedOutput read = ParseOutput(With("gemma4", ""), "<|tool_call>call:f" + text);
    return read.tool_calls.size() != 1   ? "no call"
           : read.tool_calls[0].is_whole ? read.tool_calls[0].arguments + read.content
                                         : "broken: " + read.tool_calls[0].arguments + read.content;
  };
  EXPECT_EQ(arguments("{a:b c, d : 0150,e:12:30,f:None}<tool_call|>"),
            R"({"a": "b c", "d": "0150", "e": "12:30", "f": null})");
  EXPECT_EQ(arguments(R"({<|"|>a b<|"|>:1}<tool_call|> then)"), R"({"a b": 1}then)");
  EXPECT_EQ(arguments("{a:1,b:<tool_call|> then"), R"(broken: {"a": 1, "b": then)");
  EXPECT_EQ(arguments("{a:[1}<tool_call|>"), R"(broken: {"a": [1})");
  EXPECT_EQ(arguments(R"({a:<|"|>cut)"), R"(broken: {"a": "cut)");
  EXPECT_EQ(ParseOutput(With("gemma4", ""), "<|tool_call>f{} <|tool_call>call:a b{}").content,
            "<|tool_call>f{} <|tool_call>call:a b{}");
}

TEST(ToolCallParserTest, EndsBrokenArgumentsWithWhatThereIs) {
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

TEST(ToolCallParserTest, ReadsArgumentsBeforeTheNameAndArgumentsInAString) {
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

TEST(ToolCallParserTest, GivesArgumentsAsTheyCome) {
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

TEST(ToolCallParserTest, TellsStringsFromOtherValuesByTheSchemaOfQwen3Coder) {
  OutputParserOptions options = With("qwen3_coder", "");
  options.tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}}}])");
  const std::string text = Samples()[14].text;
  EXPECT_THAT(CallsOf(ParseOutput(options, text)),
              ElementsAre(Pair("f", "{\"text\": \"line 1\\nline \\\"2\\\"\", \"n\": 3}")));
  EXPECT_EQ(ParseOutput(options, text).content, "Now. done");
}

std::string Qwen3CoderValue(const std::string& schema, const std::string& value) {
  OutputParserOptions options = With("qwen3_coder", "");
  options.tools = nlohmann::ordered_json::parse(
      absl::StrCat(R"([{"name": "f", "parameters": {"properties": {"a": )", schema, "}}}]"));
  const ParsedOutput parsed =
      ParseOutput(options, absl::StrCat("<tool_call>\n<function=f>\n<parameter=a>\n", value,
                                        "\n</parameter>\n</function>\n</tool_call>"));
  return parsed.tool_calls.size() == 1 ? parsed.tool_calls[0].arguments : "no call";
}

TEST(ToolCallParserTest, ReadsTheTypesOfAlternatives) {
  const std::string optional_integer = R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})";
  EXPECT_EQ(Qwen3CoderValue(optional_integer, "3"), R"({"a": 3})");
  EXPECT_EQ(Qwen3CoderValue(optional_integer, "None"), R"({"a": null})");
  const std::string optional_text = R"({"anyOf": [{"type": "string"}, {"type": "null"}]})";
  EXPECT_EQ(Qwen3CoderValue(optional_text, "3"), R"({"a": "3"})");
  EXPECT_EQ(Qwen3CoderValue(optional_text, "null"), R"({"a": null})");
  EXPECT_EQ(Qwen3CoderValue(R"({"type": ["string", "null"]})", "true"), R"({"a": "true"})");
  EXPECT_EQ(Qwen3CoderValue(R"({"enum": [1, 2]})", "2"), R"({"a": 2})");
  EXPECT_EQ(Qwen3CoderValue(R"({"enum": ["1", "2"]})", "2"), R"({"a": "2"})");
  EXPECT_EQ(Qwen3CoderValue("{}", "2"), R"({"a": "2"})");
}

TEST(ToolCallParserTest, ReadsPythonsWordsWhereTheSchemaHasNoStrings) {
  EXPECT_EQ(Qwen3CoderValue(R"({"type": "boolean"})", "True"), R"({"a": true})");
  EXPECT_EQ(Qwen3CoderValue(R"({"type": "boolean"})", "false"), R"({"a": false})");
  EXPECT_EQ(Qwen3CoderValue(R"({"type": "object"})", "None"), R"({"a": null})");
  EXPECT_EQ(Qwen3CoderValue(R"({"type": "string"})", "True"), R"({"a": "True"})");
  EXPECT_EQ(Qwen3CoderValue(R"({"type": "string"})", "None"), R"({"a": "None"})");
}

TEST(ToolCallParserTest, AnObjectWithoutParametersIsNoCallOfLlamas) {
  const std::string text = R"({"name": "Ann", "age": 3})";
  const ParsedOutput parsed = ParseOutput(With("llama3_json", ""), text);
  EXPECT_THAT(CallsOf(parsed), ElementsAre());
  EXPECT_EQ(parsed.content, text);
  EXPECT_THAT(CallsOfFormat("llama3_json", R"(<|python_tag|>{"name": "now"})"),
              ElementsAre(Pair("now", "{}")));
}

constexpr const char* kPieces[] = {"<tool_call>",
                                   "</tool_call>",
                                   "{",
                                   "}",
                                   "\"",
                                   "\\",
                                   "[",
                                   "]",
                                   ",",
                                   ":",
                                   "\"name\": \"f\"",
                                   ", \"arguments\": {",
                                   "\"parameters\":{\"a\": 1}",
                                   "\n",
                                   " ",
                                   "f",
                                   "12",
                                   "<function=f>",
                                   "</function>",
                                   "<parameter=a>",
                                   "</parameter>",
                                   "<arg_key>a</arg_key>",
                                   "<arg_value>",
                                   "</arg_value>",
                                   "<|tool_call_begin|>functions.f:0",
                                   "<|tool_call_argument_begin|>",
                                   "<|tool_call_end|>",
                                   "<|tool_calls_section_end|>",
                                   "[TOOL_CALLS]",
                                   "f[ARGS]",
                                   ";",
                                   "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
                                   "<｜tool▁call▁end｜>",
                                   "<|channel|>commentary",
                                   " to=functions.f",
                                   "<|message|>",
                                   "<|end|>",
                                   "<|call|>",
                                   "<seed:tool_call>",
                                   "<minimax:tool_call>",
                                   "<invoke name=\"f\">",
                                   "<parameter name=\"a\">",
                                   "</invoke>",
                                   "<|tool_call|>[",
                                   "<|START_ACTION|>",
                                   "<|tool_call>call:f{",
                                   "<tool_call|>",
                                   "<|\"|>",
                                   "<answer>\n",
                                   "\n</answer>",
                                   "<tool_calls>",
                                   "<tool_calls>[",
                                   "</tool_calls>",
                                   "f\n```json\n",
                                   "functools[",
                                   "<|/tool_call|>",
                                   "<start_function_call>call:f{",
                                   "<end_function_call>",
                                   "<escape>",
                                   "<channel|>",
                                   "[/THINK]",
                                   "<think>",
                                   "</think>",
                                   "<"};

TEST(ToolCallParserTest, TextsWithRandomChangesAreTheSameHoweverCut) {
  uint32_t state = 1;
  const auto random = [&state](size_t count) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % count;
  };
  int num_calls = 0;
  for (const Sample& sample : Samples()) {
    for (int i = 0; i < 500; ++i) {
      std::string text = sample.text;
      for (size_t count = random(4); count > 0; --count) {
        const size_t at = random(text.size() + 1);
        if (random(2) == 0) text.erase(at, random(12));
        text.insert(std::min(at, text.size()), kPieces[random(std::size(kPieces))]);
      }
      OutputParser parser(sample.options);
      std::vector<ParsedDelta> deltas;
      for (size_t at = 0, bytes; at < text.size(); at += bytes) {
        bytes = 1 + random(9);
        Extend(&deltas, parser.Append(text.substr(at, bytes)));
      }
      Extend(&deltas, parser.Finish());
      num_calls += parser.num_tool_calls();
      ASSERT_EQ(Describe(deltas), InPieces(sample.options, text, text.size())) << text;
    }
  }
  EXPECT_GT(num_calls, 5000);
}

}  // namespace
}  // namespace bulkhead
