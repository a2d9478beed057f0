#include "runtime/chat/python_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/chat/output_parser.h"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// The JSON of a value, from a call; "" where there is no whole call.
std::string JsonOf(const std::string& value) {
  const ParsedOutput parsed = ParseOutput(With("pythonic", ""), absl::StrCat("[f(v=", value, ")]"));
  if (parsed.tool_calls.size() != 1 || !parsed.tool_calls[0].is_whole) return "";
  const std::string& json = parsed.tool_calls[0].arguments;
  EXPECT_EQ(json.substr(0, 6), R"({"v": )");
  return json.substr(6, json.size() - 7);
}

TEST(PythonArgumentsTest, LiteralsAreTheJsonOfTheirValues) {
  for (const auto& [python, json] : std::vector<std::pair<std::string, std::string>>{
           {"True", "true"},
           {"false", "false"},
           {"None", "null"},
           {"-1.5e3", "-1.5e3"},
           {"+1_000", "1000"},
           {".5", "0.5"},
           {"-5.", "-5.0"},
           {"0xFf", "255"},
           {"''", R"("")"},
           {R"('it\'s "x"')", R"("it's \"x\"")"},
           {"\"a\nb\"", R"("a\nb")"},
           {"'''a'b''c\n'''", R"("a'b''c\n")"},
           {R"('\x41\u00e9\U0001f600\ud83d\ude00\0\d')",
            R"("\u0041\u00e9\ud83d\ude00\ud83d\ude00\\0\\d")"},
           {"'a\\\nb\\\\'", R"("ab\\")"},
           {"[1, 'a', [None,], ]", R"([1, "a", [null]])"},
           {"{'a': {1: True}, \"b\" : []}", R"({"a": {"1": true}, "b": []})"},
           {"(1, 2)", "[1, 2]"},
           {"(1,)", "[1]"},
           {"[]", "[]"},
           {"'Zürich'", "\"Zürich\""}}) {
    EXPECT_EQ(JsonOf(python), json) << python;
  }
}

TEST(PythonArgumentsTest, WhatIsNoLiteralIsNoWholeCall) {
  for (const std::string value :
       {"x", "g(1)", "1 + 2", "[1 2]", "{1}", "{'a', 'b'}", "{[1]: 2}", "(1)", "'a' 'b'", "'a", "",
        "[1}", "007", "0x", "f'{a}'", "[,]", "{'a' 1}", "()", "[g(a=1)]"}) {
    EXPECT_EQ(JsonOf(value), "") << value;
  }
  EXPECT_NE(JsonOf(Repeated("[", 64) + Repeated("]", 64)), "");
  EXPECT_EQ(JsonOf(Repeated("[", 65) + Repeated("]", 65)), "");
}

TEST(PythonArgumentsTest, ReadsListsOfCallsOfLlama) {
  const auto calls = ElementsAre(Pair("get_weather", R"({"city": "Paris", "days": 3})"),
                                 Pair("f", "{}"), Pair("a.b", R"({"x": [1]})"));
  const std::string list = "[get_weather(city=\"Paris\", days = 3,), f( ),\n a.b(x=[1])]";
  for (const std::string format : {"pythonic", "llama4_pythonic"}) {
    for (const std::string& text : {list, "\n\n" + list + "\n", "<|python_start|>" + list,
                                    "<|python_start|>" + list + "<|python_end|>"}) {
      const ParsedOutput parsed = ParseOutput(With(format, ""), text);
      EXPECT_THAT(CallsOf(parsed), calls) << text;
      EXPECT_EQ(parsed.content, "") << text;
    }
  }
  const ParsedOutput lfm2 = ParseOutput(
      With("lfm2", ""), "I look. <|tool_call_start|>" + list + "<|tool_call_end|>Sure.");
  EXPECT_THAT(CallsOf(lfm2), calls);
  EXPECT_EQ(lfm2.content, "I look. Sure.");
}

TEST(PythonArgumentsTest, ReadsCallsOfOlmoInTheirTags) {
  const ParsedOutput parsed =
      ParseOutput(With("olmo3", "qwen3"),
                  "<think>I look.</think>Sure. <function_calls>\nget_weather(city='Oslo', ok=true)"
                  "\nnow()\n</function_calls>\nend() of it");
  EXPECT_EQ(parsed.reasoning, "I look.");
  EXPECT_EQ(parsed.content, "Sure.\nend() of it");
  EXPECT_THAT(CallsOf(parsed), ElementsAre(Pair("get_weather", R"({"city": "Oslo", "ok": true})"),
                                           Pair("now", "{}")));
}

TEST(PythonArgumentsTest, WhatIsNoCallIsContentWithNothingLost) {
  for (const std::string text :
       {"[", "[]", "[1, 2]", "[link](http://a)", "[f", "[f(", "[f()", "[f() is a function]",
        "[f(x)]", "[f(x=y)]", "[f(x=g(y=1))]", "[f(\"Paris\")]", " [f (x=1)]", "Look: [f(x=1)]",
        "[1.f(x=1)]", "[f(x=1", "<|python_start|>f(x=1)", "x [f()]"}) {
    const ParsedOutput parsed = ParseOutput(With("pythonic", ""), text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.tool_calls, IsEmpty()) << text;
  }
  for (const std::string text : {"<function_calls>\n</function_calls>", "<function_calls>f x",
                                 "f(x=1)", "<function_calls>\n[f()]</function_calls>"}) {
    EXPECT_EQ(ParseOutput(With("olmo3", ""), text).content, text);
  }
  const ParsedOutput parsed = ParseOutput(With("pythonic", ""), "[f(a=1), 2, g()]");
  EXPECT_THAT(CallsOf(parsed), ElementsAre(Pair("f", R"({"a": 1})")));
  EXPECT_EQ(parsed.content, ", 2, g()]");
}

TEST(PythonArgumentsTest, ACallThatIsBrokenOrCutOffInsideIsNotWhole) {
  for (const auto& [text, arguments, content] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"[f(a=1, b=g(c=2))]", R"({"a": 1)", "b=g(c=2))]"},
           {"[f(a='x", R"({"a": "x)", ""},
           {"[f(a='x\\", R"({"a": "x\\)", ""},
           {"[f(a=1, b=2", R"({"a": 1, "b": 2)", ""},
           {"[f(a=[1, 2", R"({"a": [1, 2)", ""}}) {
    const ParsedOutput parsed = ParseOutput(With("pythonic", ""), text);
    EXPECT_THAT(CallsOf(parsed), ElementsAre(Pair("f", arguments))) << text;
    EXPECT_FALSE(parsed.tool_calls[0].is_whole) << text;
    EXPECT_EQ(parsed.content, content) << text;
  }
  for (const std::string rest : {"", ", ", "]", ",\n"}) {
    const ParsedOutput parsed = ParseOutput(With("pythonic", ""), "[f(a=1)" + rest);
    EXPECT_TRUE(parsed.tool_calls[0].is_whole);
    EXPECT_EQ(parsed.content, "");
  }
}

TEST(PythonArgumentsTest, TokensOfAnyLengthAreTheSameInAnyPieces) {
  for (const size_t bytes : {1000, 1015, 1020, 1022, 1023, 1024, 1025, 1026, 1030, 5000}) {
    const std::string spaces(bytes, ' '), name(bytes, 'n');
    for (const std::string& text : std::vector<std::string>{
             "[f(" + spaces + "a=1)]", "[f(a" + spaces + "='x')]", "[f(a=" + spaces + "''' ''')]",
             "[f(" + name + "=1)]", "[f(a=1" + spaces + ", " + name + "=[" + spaces + "])]",
             "[f(a=1" + name + ")]", "[f(" + spaces + ")" + spaces + "]", "[f()  ]",
             "[f(a=" + spaces + "'')" + spaces + ",g()]", "[f(a='" + spaces + "')]"}) {
      const std::string whole = InPieces(With("pythonic", ""), text, text.size());
      for (const size_t piece : {1, 7, 64}) {
        EXPECT_EQ(InPieces(With("pythonic", ""), text, piece), whole) << bytes << text.substr(0, 9);
      }
    }
  }
}

TEST(PythonArgumentsTest, AnySequenceOfTokensIsTheSameInAnyPiecesAndNotLost) {
  static constexpr const char* kTokens[] = {"[",
                                            "[",
                                            "f(",
                                            "f(",
                                            "g",
                                            "(",
                                            ")",
                                            ")",
                                            "]",
                                            "]",
                                            "a=",
                                            "b = ",
                                            ", ",
                                            ",",
                                            "'x'",
                                            "'''",
                                            "'",
                                            "\"",
                                            "\\",
                                            "\\n",
                                            "\\u00",
                                            "\\x41",
                                            "1",
                                            "-2.5",
                                            "\xC3\xA9",
                                            " ",
                                            "\n",
                                            "True",
                                            "{",
                                            "}",
                                            "{'k':",
                                            ":",
                                            "[1, 2]",
                                            "()",
                                            "None",
                                            "end of it",
                                            "<function_calls>",
                                            "</function_calls>",
                                            "<|tool_call_start|>",
                                            "<|tool_call_end|>",
                                            "<|python_start|>",
                                            "<|python_end|>"};
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    for (const auto& [format, begin] :
         {std::pair("pythonic", "[f("), std::pair("olmo3", "<function_calls>f("),
          std::pair("lfm2", "<|tool_call_start|>[f(")}) {
      std::string text = i % 4 == 0 ? "" : begin;
      for (size_t count = random() % 20; count > 0; --count) {
        text += kTokens[random() % std::size(kTokens)];
      }
      const std::string whole = InPieces(With(format, ""), text, text.size() + 1);
      ASSERT_EQ(InPieces(With(format, ""), text, 1), whole) << text;
      ASSERT_EQ(InPieces(With(format, ""), text, 1 + random() % 9), whole) << text;
      const ParsedOutput parsed = ParseOutput(With(format, ""), text);
      if (parsed.tool_calls.empty()) {
        ASSERT_EQ(parsed.content, text);
      }
    }
  }
}

TEST(PythonArgumentsTest, StringsAreGivenAsTheyCome) {
  OutputParser parser(With("pythonic", ""));
  std::vector<ParsedDelta> deltas = parser.Append("[f(text='one two");
  EXPECT_THAT(Describe(deltas), ::testing::HasSubstr(R"({"text": "one two)"));
}

TEST(PythonArgumentsTest, NestedValuesInTagsMayBePython) {
  for (const auto& [format, begin, end] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"qwen3_coder", "<tool_call><function=f>", "</function></tool_call>"},
           {"seed_oss", "<seed:tool_call><function=f>", "</function></seed:tool_call>"}}) {
    OutputParserOptions options = With(format, "");
    options.tools = nlohmann::ordered_json::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
            "properties": {"o": {"type": "object"}, "a": {"type": "array"}, "s": {"type": "string"},
                           "u": {"type": ["string", "array"]}}}}}])");
    const ParsedOutput parsed = ParseOutput(
        options, begin +
                     "<parameter=o>{'a': [True, None, 'it\\'s']}</parameter><parameter=a>[('a', "
                     "1),]</parameter><parameter=s>['x']</parameter><parameter=u>[x]"
                     "</parameter><parameter=a>[1], b=[2]</parameter><parameter=o>{'a': x}"
                     "</parameter>" +
                     end);
    EXPECT_THAT(CallsOf(parsed),
                ElementsAre(Pair("f", R"({"o": {"a": [true, null, "it's"]}, "a": [["a", 1]], )"
                                      R"("s": "['x']", "u": "[x]", "a": "[1], b=[2]", )"
                                      R"("o": "{'a': x}"})")))
        << format;
  }
}

}  // namespace
}  // namespace bulkhead
