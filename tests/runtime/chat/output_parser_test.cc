#include "runtime/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(OutputParser, GivesTheSameForEveryCutOfATextInTwoAndInCharacters) {
  for (const Sample& sample : Samples()) {
    OutputParser whole(sample.options);
    std::vector<ParsedDelta> deltas = whole.Append(sample.text);
    Extend(&deltas, whole.Finish());
    const std::string expected = Describe(deltas);
    for (size_t cut = 0; cut <= sample.text.size(); ++cut) {
      OutputParser parser(sample.options);
      std::vector<ParsedDelta> parts = parser.Append(sample.text.substr(0, cut));
      Extend(&parts, parser.Append(sample.text.substr(cut)));
      Extend(&parts, parser.Finish());
      ASSERT_EQ(Describe(parts), expected) << sample.text << "\ncut at " << cut;
    }
    OutputParser parser(sample.options);
    std::vector<ParsedDelta> parts;
    for (const char c : sample.text) Extend(&parts, parser.Append(std::string(1, c)));
    Extend(&parts, parser.Finish());
    EXPECT_EQ(Describe(parts), expected) << sample.text;
  }
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

TEST(OutputParser, WhereCallsAreAloneTheRestOfOneIsNoContent) {
  OutputParserOptions options = With("hermes", "");
  options.calls_alone = true;
  for (const std::string text : {"<tool_", "<tool_call>\n", "<tool_call>\n{\"name\": \"f"}) {
    EXPECT_EQ(ParseOutput(options, text).content, "") << text;
    EXPECT_THAT(ParseOutput(options, text).tool_calls, IsEmpty());
  }
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

TEST(OutputParser, ACallIsWholeWhereItsArgumentsAre) {
  const auto is_whole = [](const char* format, const std::string& text) {
    const OutputParserOptions options =
        With(format, std::string(format) == "openai" ? "openai_gptoss" : "");
    const ParsedOutput parsed = ParseOutput(options, text);
    EXPECT_THAT(parsed.tool_calls, SizeIs(1)) << text;
    return parsed.tool_calls[0].is_whole;
  };
  const std::string harmony = "<|channel|>commentary to=functions.f<|message|>";
  for (const auto& [format, begin, rest] :
       std::vector<std::tuple<const char*, std::string, std::string>>{
           {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {}", "}"},
           {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"}", "\"}"},
           {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1", "}"},
           {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1", "}"},
           {"qwen3_coder", "<tool_call><function=f><parameter=a>1</parameter>", "</function>"},
           {"openai", harmony + "{\"a\": 1", "}"},
           {"openai", harmony + "{\"a\": 1", "}<|call|>"}}) {
    EXPECT_FALSE(is_whole(format, begin)) << begin;
    EXPECT_TRUE(is_whole(format, begin + rest)) << begin;
  }
}

TEST(OutputParser, ACallWhoseArgumentsAreNoJsonIsNotWholeWhateverIsBehindIt) {
  for (const std::string arguments :
       {R"({"a": 1, )", R"({"a": })", R"({"a": True})", R"({"a": [1}})", "{\"a\": \"x\ny\"}",
        R"({"a": 01})", R"({"a": 1,})", R"({"a" 1})", R"({"a": "\x"})"}) {
    for (const auto& [format, begin, end] :
         std::vector<std::tuple<const char*, std::string, std::string>>{
             {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "}</tool_call>"},
             {"llama3_json", "{\"name\": \"f\", \"parameters\": ", "}"},
             {"mistral", "[TOOL_CALLS]f[ARGS]", " and"},
             {"kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
              "<|tool_call_end|>"},
             {"openai", "<|channel|>commentary to=functions.f<|message|>",
              "<|call|><|start|>assistant<|channel|>final<|message|>x"}}) {
      const OutputParserOptions options = With(format, "");
      const std::string text = begin + arguments + end;
      const ParsedOutput parsed = ParseOutput(options, text);
      ASSERT_THAT(parsed.tool_calls, SizeIs(1)) << text;
      EXPECT_FALSE(parsed.tool_calls[0].is_whole) << text;
      OutputParser streamed(options);
      for (const char c : text) streamed.Append(std::string(1, c));
      streamed.Finish();
      EXPECT_FALSE(streamed.is_call_whole(0)) << text;
    }
  }
}

TEST(OutputParser, EachOfSeveralCallsIsWholeByItself) {
  const ParsedOutput parsed = ParseOutput(
      With("hermes", ""), R"(<tool_call>{"name": "f", "arguments": {"a": }}</tool_call>)"
                          R"(<tool_call>{"name": "g", "arguments": {"a": 1}}</tool_call>)"
                          R"(<tool_call>{"name": "h", "arguments": {"a": [1}</tool_call>)");
  ASSERT_THAT(parsed.tool_calls, SizeIs(3));
  EXPECT_FALSE(parsed.tool_calls[0].is_whole);
  EXPECT_TRUE(parsed.tool_calls[1].is_whole);
  EXPECT_FALSE(parsed.tool_calls[2].is_whole);
}

TEST(OutputParser, TextsOnBothSidesOfACallKeepTheWhiteSpaceOfOneSide) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const std::string harmony = "<|channel|>commentary to=functions.f<|message|>{}<|call|>";
  const std::string message = "<|start|>assistant<|channel|>final<|message|>";
  for (const auto& [format, text, content] :
       std::vector<std::tuple<const char*, std::string, std::string>>{
           {"hermes", "Hello! " + call + " bye", "Hello! bye"},
           {"hermes", "Hello!\n\n" + call + " bye ", "Hello! bye "},
           {"hermes", "Hello! " + call + "bye", "Hello!\nbye"},
           {"hermes", "Hello! " + call + " \n" + call + "\n\nbye", "Hello!\n\nbye"},
           {"hermes", "Hello! " + call + " ", "Hello!"},
           {"hermes", " \n" + call + " bye", "bye"},
           {"hermes", "a " + call + " b\n" + call + "\tc\n" + call, "a b\tc"},
           {"hermes", "a" + call + std::string(3000, ' ') + "b",
            "a" + std::string(1023, ' ') + "b"},
           {"mistral", "Hi [TOOL_CALLS]f[ARGS]{} bye", "Hi bye"},
           {"mistral", "Hi [TOOL_CALLS]f[ARGS]{}bye", "Hi bye"},
           {"deepseek_v3", absl::StrCat(kDeepSeekText, "\nbye"), "ok\nbye"},
           {"kimi_k2", absl::StrCat(kKimiText, " Bye"), "I look. Bye"},
           {"openai", message + "Hi<|end|><|start|>assistant" + harmony + message + "bye<|return|>",
            "Hi\nbye"},
           {"openai",
            message + "Hi<|end|><|channel|>commentary to=functions.f<|message|>\n{}<|call|>bye",
            "Hi\nbye"}}) {
    EXPECT_EQ(ParseOutput(With(format, ""), text).content, content) << text;
    for (const size_t bytes : {1, 2, 7}) {
      EXPECT_EQ(InPieces(With(format, ""), text, bytes),
                InPieces(With(format, ""), text, text.size()))
          << text;
    }
  }
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
  for (const auto& [name, open, close] :
       {std::tuple("seed_oss", "<seed:think>", "</seed:think>"),
        std::tuple("seed_oss", "<seed:think><seed:cot_budget_reflect>", "</seed:think>"),
        std::tuple("mistral", "[THINK]", "[/THINK]"),
        std::tuple("gemma4", "<|channel>thought\n", "<channel|>"),
        std::tuple("cohere_command3", "<|START_THINKING|>", "<|END_THINKING|>"),
        std::tuple("hunyuan_a13b", "<think>\n", "\n</think>\n<answer>\n"),
        std::tuple("minimax_m2", "<think>\n", "</think>")}) {
    const std::string text = absl::StrCat("a", close, "b");
    const ParsedOutput parsed = ParseOutput(With("", name, open), text);
    EXPECT_EQ(parsed.reasoning, "a") << name;
    EXPECT_EQ(parsed.content, "b") << name;
    EXPECT_EQ(ParseOutput(With("", name), absl::StrCat(open, text)).content, "b") << name;
    EXPECT_EQ(ParseOutput(With("", name, absl::StrCat(open, close)), "a").content, "a") << name;
    EXPECT_EQ(ParseOutput(With("", name, open), "a").reasoning, "a") << name;
  }
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
  EXPECT_EQ(automatic("<seed:tool_call>\n<function=").tool, ToolFormat::kSeedOss);
  EXPECT_EQ(automatic("<seed:think>").reasoning, ReasoningFormat::kSeed);
  EXPECT_EQ(automatic("<minimax:tool_call> <think>").tool, ToolFormat::kMiniMaxM2);
  EXPECT_EQ(automatic("<minimax:tool_call> <think>").reasoning, ReasoningFormat::kThinkTags);
  EXPECT_EQ(automatic("[TOOL_CALLS] [THINK]").reasoning, ReasoningFormat::kMistral);
  EXPECT_EQ(automatic("<|start_of_role|> <|tool_call|> <think>").tool, ToolFormat::kGranite);
  EXPECT_EQ(automatic("'<|extra_0|>' '<tool_calls><tool_call>' + name").tool, ToolFormat::kHunyuan);
  EXPECT_EQ(automatic("'<｜hy_Assistant｜>' <tool_calls>[").tool, ToolFormat::kHunyuan);
  EXPECT_EQ(automatic("'<tool_calls><tool_call>' + name").tool, ToolFormat::kHermes);
  EXPECT_EQ(automatic("formatted as functools[{\"name\": ").tool, ToolFormat::kPhi4Mini);
  EXPECT_EQ(automatic("'<|tool|>' + message['tools'] + '<|/tool|>'").tool, ToolFormat::kPhi4Mini);
  EXPECT_EQ(automatic("<|tool_call|>").tool, ToolFormat::kNone);
  EXPECT_EQ(automatic("<|START_THINKING|> <|START_ACTION|>").tool, ToolFormat::kCohere);
  EXPECT_EQ(automatic("<|extra_0|> <think>\n\n</think>").reasoning, ReasoningFormat::kHunyuan);
  EXPECT_EQ(automatic("<｜hy_Assistant｜>").reasoning, ReasoningFormat::kNone);
  EXPECT_EQ(automatic("<|START_THINKING|>").reasoning, ReasoningFormat::kCohere);
  EXPECT_EQ(automatic("'<|tool_call>call:' '<|channel>thought\n'").tool, ToolFormat::kGemma4);
  EXPECT_EQ(automatic("<start_of_turn> '<start_function_call>call:' + function['name']").tool,
            ToolFormat::kFunctionGemma);
  EXPECT_EQ(automatic("if '<|channel>' in part").reasoning, ReasoningFormat::kGemma);
  EXPECT_EQ(automatic("<|header_start|> '\"parameters\": '").tool, ToolFormat::kLlama3Json);
  EXPECT_EQ(automatic("<|header_start|> [f(parameters=1)]").tool, ToolFormat::kNone);
  EXPECT_EQ(automatic("<|start_header_id|> [func_name1(params_name1=").tool, ToolFormat::kPythonic);
  EXPECT_EQ(automatic("<start_of_turn> [func_name1(params_name1=").tool, ToolFormat::kPythonic);
  EXPECT_EQ(automatic("'<function_calls>' + calls").tool, ToolFormat::kOlmo3);
  EXPECT_EQ(automatic("<function_calls><invoke name=").tool, ToolFormat::kNone);
  EXPECT_EQ(automatic("'List of tools: <|tool_list_start|>['").tool, ToolFormat::kLfm2);
  EXPECT_EQ(automatic("'<|tool_call_start|>['").tool, ToolFormat::kLfm2);
  EXPECT_TRUE(NeedsSpecialTokens(automatic("[THINK]")));
  EXPECT_TRUE(NeedsSpecialTokens(automatic("<|tool_call_begin|>")));
  EXPECT_EQ(automatic("plain").tool, ToolFormat::kNone);
  EXPECT_FALSE(NeedsSpecialTokens(automatic("plain")));
  EXPECT_FALSE(NeedsSpecialTokens(automatic("<tool_call> <think>")));
  EXPECT_TRUE(NeedsSpecialTokens(automatic("[TOOL_CALLS]")));
  EXPECT_TRUE(NeedsSpecialTokens(automatic("<|channel|><|message|>")));
  EXPECT_THAT(std::string(ChooseOutputFormat("toolace", "", "").status().message()),
              ::testing::HasSubstr("hermes"));
  EXPECT_FALSE(ChooseOutputFormat("", "other", "").ok());
  EXPECT_FALSE(ChooseOutputFormat("hermes", "openai_gptoss", "").ok());
  EXPECT_FALSE(ChooseOutputFormat("openai", "gemma4", "").ok());
}

TEST(OutputParserTest, MarkersWithoutEndEndAndAreTheSameInAnyPieces) {
  for (const char* marker : {"<|channel|>", "<|start|>", "<|end|>", "<|call|>", "<|message|>"}) {
    const std::string text = Repeated(marker, 2000);
    const std::string whole = InPieces(With("openai", "openai_gptoss"), text, text.size());
    EXPECT_EQ(InPieces(With("openai", "openai_gptoss"), text, 7), whole) << marker;
  }
  for (const char* marker : {"<tool_call>", "<think>", " "}) {
    const std::string text = Repeated(marker, 2000) + "<think>x";
    const std::string whole = InPieces(With("hermes", "qwen3"), text, text.size());
    EXPECT_EQ(InPieces(With("hermes", "qwen3"), text, 7), whole) << marker;
  }
}

TEST(OutputParserTest, AMegabyteOfMarkersTakesNoTimeThatGrowsWithItsSquare) {
  // Quadratic, it would take minutes: the test's limit is the check.
  ParseOutput(With("openai", "openai_gptoss"), Repeated("<|end|>", 150'000));
  ParseOutput(With("deepseek_v3", "none"), Repeated("<｜tool▁call▁begin｜>", 40'000));
  ParseOutput(With("hermes", "none"), Repeated("<tool_call>", 90'000));
  ParseOutput(With("glm45", "none"), Repeated("<tool_call>f<arg_key>a</arg_key>", 30'000));
  ParseOutput(With("kimi_k2", "none"), Repeated("<|tool_call_begin|>f", 40'000));
  const std::string open_value = "<tool_call>f<arg_key>a</arg_key><arg_value>";
  InPieces(With("glm45", "none"), open_value + Repeated("</arg_valu", 100'000), 7);
  InPieces(With("glm45", "none"), open_value + "1" + std::string(1 << 20, ' '), 64);
  InPieces(With("hermes", "none"), "<tool_call>" + Repeated("{\"name\":", 100'000), 7);
  ParseOutput(With("minimax_m2", "none"),
              "<minimax:tool_call>" + Repeated("<invoke name=\"f\"></invoke>", 40'000));
  ParseOutput(With("gemma4", "none"), "<|tool_call>call:f{" + Repeated("a:1,", 250'000));
  InPieces(With("gemma4", "none"), "<|tool_call>call:f{a:<|\"|>" + Repeated("<|\"|", 250'000), 7);
  for (const char* piece : {"a=1, ", "a=[{", "'\\x4", "a='''''", "\\", " ", "f(), "}) {
    InPieces(With("pythonic", "none"), "[f(a=1, b='''" + Repeated(piece, 200'000), 7);
    InPieces(With("pythonic", "none"), "[f(b=1, " + Repeated(piece, 200'000), 7);
    ParseOutput(With("olmo3", "none"), "<function_calls>" + Repeated(piece, 200'000));
  }
  OutputParser spaces(With("none", "qwen3"));
  for (int i = 0; i < 20'000; ++i) spaces.Append(std::string(64, ' '));
}

TEST(OutputParserTest, CallsOfGemmaNestAsDeepAsOthers) {
  const auto arguments = [](int depth) -> std::string {
    const std::string lists = std::string(depth - 1, '[') + std::string(depth - 1, ']');
    const std::string text = "<|tool_call>call:f{a:" + lists + "}<tool_call|>";
    const ParsedOutput output = ParseOutput(With("gemma4", "none"), text);
    return output.tool_calls.empty() ? "" : output.tool_calls[0].arguments;
  };
  EXPECT_EQ(arguments(3), R"({"a": [[]]})");
  EXPECT_TRUE(nlohmann::json::accept(arguments(64)));
  EXPECT_FALSE(nlohmann::json::accept(arguments(65)));
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
