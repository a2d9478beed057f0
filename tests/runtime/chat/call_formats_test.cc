// Formats of calls that are other formats with other markers, and each one's own differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/output_parser.h"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// The arguments of a text's only call, whether they are JSON, and the content.
std::string OnlyCall(const std::string& format, const std::string& text) {
  const ParsedOutput parsed = ParseOutput(With(format, ""), text);
  if (parsed.tool_calls.size() != 1) return "no call";
  return absl::StrCat(parsed.tool_calls[0].is_whole ? "" : "broken: ",
                      parsed.tool_calls[0].arguments, parsed.content);
}

// How many characters of a call's arguments have come before its text ends.
size_t GivenOfOpenCall(const std::string& format, const std::string& text) {
  OutputParser parser(With(format, ""));
  size_t given = 0;
  for (const ParsedDelta& delta : parser.Append(text)) {
    if (delta.kind == ParsedDelta::Kind::kToolCall) given += delta.text.size();
  }
  return given;
}

TEST(CallFormatsTest, ReadsCallsOfFunctionGemma) {
  const ParsedOutput parsed = ParseOutput(With("functiongemma", ""), kFunctionGemmaText);
  EXPECT_EQ(parsed.content, "I look. Sure.");
  EXPECT_THAT(
      CallsOf(parsed),
      ElementsAre(Pair("get_weather", R"({"at": {"lat": 59.9, "names": ["a:\"{b", null, []]}, )"
                                      R"("city": "Oslo, N\n", "ok": true})"),
                  Pair("now", "{}")));
  EXPECT_TRUE(NeedsSpecialTokens(With("functiongemma", "").format));
}

TEST(CallFormatsTest, ACallOfFunctionGemmaThatIsBrokenEndsWithWhatThereIs) {
  const std::string begin = "<start_function_call>call:f{a:";
  EXPECT_EQ(OnlyCall("functiongemma", begin + "<escape>3<escape>,b:3}<end_function_call> then"),
            R"({"a": "3", "b": 3}then)");
  EXPECT_EQ(OnlyCall("functiongemma", begin + "<escape>cut"), R"(broken: {"a": "cut)");
  EXPECT_EQ(OnlyCall("functiongemma", begin + "<end_function_call> then"), R"(broken: {"a": then)");
  EXPECT_EQ(OnlyCall("functiongemma", begin + "<|\"|>x<|\"|>}"), R"(broken: {"a": <|"|>x<|"|>})");
  for (const std::string text :
       {"<start_function_call>f{}", "<start_function_call>call:a b{}",
        "<start_function_call>call:f", "the tag <start_function_call> begins a call"}) {
    const ParsedOutput parsed = ParseOutput(With("functiongemma", ""), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.tool_calls, IsEmpty()) << text;
  }
}

TEST(CallFormatsTest, ReadsBothFormsOfPhi4Mini) {
  const auto calls =
      ElementsAre(Pair("get_weather", R"({"cities": ["Oslo [N]"]})"), Pair("now", "{}"));
  const std::string list = std::string(kPhiText).substr(std::string(kPhiText).find('['));
  for (const std::string& text : {"I look. functools" + list, "I look.<|tool_call|>" + list,
                                  "I look.<|tool_call|>" + list + "<|/tool_call|>",
                                  "I look.<|tool_call|>functools" + list + "<|/tool_call|>"}) {
    const ParsedOutput parsed = ParseOutput(With("phi4_mini_json", ""), text);
    EXPECT_EQ(parsed.content, "I look.") << text;
    EXPECT_THAT(CallsOf(parsed), calls) << text;
  }
  const std::string one = R"(<|tool_call|>{"name": "f", "arguments": {"a": 1}}<|/tool_call|>)";
  const ParsedOutput several = ParseOutput(With("phi4_mini_json", ""), one + "\n" + one + "Done.");
  EXPECT_EQ(several.content, "Done.");
  EXPECT_THAT(CallsOf(several), ElementsAre(Pair("f", R"({"a": 1})"), Pair("f", R"({"a": 1})")));
}

TEST(CallFormatsTest, ACallOfPhi4MiniThatIsBrokenEndsWithWhatThereIs) {
  const std::string begin = R"(functools[{"name": "f", "arguments": {"a": )";
  EXPECT_EQ(OnlyCall("phi4_mini_json", begin + "\"cut"), "broken: {\"a\": \"cut");
  EXPECT_EQ(OnlyCall("phi4_mini_json", begin + "}}] then"), "broken: {\"a\": }then");
  EXPECT_EQ(OnlyCall("phi4_mini_json", begin + "1}}, {\"x\": 2}] then"),
            R"({"a": 1}{"x": 2}] then)");
  for (const std::string text :
       {"import functools\nfunctools.reduce(f, [1])", "functools[]", "functools[1, 2]",
        "functools[{\"name\": \"f", "<|tool_call|>f", "<|tool_call|>functools", "<|tool_call|>[",
        "[{\"name\": \"f\"}]"}) {
    const ParsedOutput parsed = ParseOutput(With("phi4_mini_json", ""), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.tool_calls, IsEmpty()) << text;
  }
}

TEST(CallFormatsTest, ReadsCallsOfBothKindsOfHunyuan) {
  for (const std::string text : {kHunyuanText, kHunyuanListText}) {
    const ParsedOutput parsed = ParseOutput(With("hunyuan_a13b", ""), text);
    EXPECT_EQ(parsed.content, "I look.") << text;
    EXPECT_THAT(CallsOf(parsed),
                ElementsAre(Pair("get_weather", R"({"city": "Oslo"})"), Pair("now", "{}")))
        << text;
  }
}

TEST(CallFormatsTest, TakesHermesCallsAndMissingTagsOfHunyuan) {
  for (const std::string text :
       {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_calls>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>f\n```json\n{\"a\": 1}\n```\n</tool_call></tool_calls>",
        "<tool_calls>\n<tool_call>f\n{\"a\": 1}</tool_calls>"}) {
    EXPECT_EQ(OnlyCall("hunyuan_a13b", text), R"({"a": 1})") << text;
    EXPECT_EQ(ParseOutput(With("hunyuan_a13b", ""), text).tool_calls[0].name, "f") << text;
  }
}

TEST(CallFormatsTest, ACallOfHunyuanThatIsBrokenEndsWithWhatThereIs) {
  const std::string begin = "<tool_calls><tool_call>f\n```json\n{\"a\": ";
  EXPECT_EQ(OnlyCall("hunyuan_a13b", begin + "\"cut"), "broken: {\"a\": \"cut");
  EXPECT_EQ(OnlyCall("hunyuan_a13b", begin + "</tool_call> then"), "broken: {\"a\": then");
  EXPECT_EQ(OnlyCall("hunyuan_a13b", begin + "1}\n``"), R"({"a": 1})");
  for (const std::string text :
       {"<tool_calls>f\n```json\n{}", "<tool_calls><b>{}", "<tool_call>a b\n```json\n{}",
        "<tool_calls>[1]</tool_calls>", "<tool_calls><tool_call>\n```json\n{}",
        "<tool_calls><tool_", "<tool_calls><tool_call>f\n```js"}) {
    const ParsedOutput parsed = ParseOutput(With("hunyuan_a13b", ""), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.tool_calls, IsEmpty()) << text;
  }
}

TEST(CallFormatsTest, GivesArgumentsAsTheyCome) {
  const std::string words(500, 'x');
  for (const char* begin : {"<tool_calls><tool_call>f\n```json\n{\"a\": \"",
                            "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": \""}) {
    EXPECT_EQ(GivenOfOpenCall("hunyuan_a13b", begin + words), words.size() + 7) << begin;
  }
  EXPECT_EQ(
      GivenOfOpenCall("phi4_mini_json", R"(functools[{"name": "f", "arguments": {"a": ")" + words),
      words.size() + 7);
  EXPECT_EQ(GivenOfOpenCall("functiongemma", "<start_function_call>call:f{a:<escape>" + words),
            words.size() + 7);
}

TEST(CallFormatsTest, NestsAsDeepAsJsonDoes) {
  const auto is_json = [](const std::string& format, const std::string& begin,
                          const std::string& end, int depth) {
    const std::string lists = std::string(depth - 1, '[') + std::string(depth - 1, ']');
    const ParsedOutput parsed = ParseOutput(With(format, ""), begin + lists + end);
    return parsed.tool_calls.size() == 1 && parsed.tool_calls[0].is_whole;
  };
  const std::string gemma = "<start_function_call>call:f{a:";
  EXPECT_TRUE(is_json("functiongemma", gemma, "}<end_function_call>", 64));
  EXPECT_FALSE(is_json("functiongemma", gemma, "}<end_function_call>", 65));
}

TEST(CallFormatsTest, AMegabyteTakesNoTimeThatGrowsWithItsSquare) {
  // Quadratic, it would take minutes: the test's limit is the check.
  const std::string gemma = "<start_function_call>call:f{a:<escape>";
  InPieces(With("phi4_mini_json", ""), Repeated("functools[{", 90'000), 7);
  ParseOutput(With("phi4_mini_json", ""),
              "functools[" + Repeated(R"({"name": "f", "arguments": {}}, )", 30'000));
  ParseOutput(With("hunyuan_a13b", ""), Repeated("<tool_calls><tool_call>f", 40'000));
  InPieces(With("hunyuan_a13b", ""), Repeated("<tool_call>\n", 90'000), 7);
  InPieces(With("functiongemma", ""), gemma + Repeated("<escap", 200'000), 7);
  ParseOutput(With("functiongemma", ""), Repeated("<start_function_call>call:f", 40'000));
}

}  // namespace
}  // namespace bulkhead
