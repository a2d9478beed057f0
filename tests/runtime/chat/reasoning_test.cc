// What of reasoning and of the tags behind it is content.
#include "runtime/chat/reasoning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/chat/output_parser.h"
#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ReasoningTest, TheTagsOfHunyuansAnswerAreNoContent) {
  const OutputParserOptions thinks = With("", "hunyuan_a13b");
  const OutputParserOptions told =
      With("", "hunyuan_a13b", "<｜hy_Assistant｜><think>\n\n</think>\n");
  const std::string thought = "<think>\nhm\n</think>\n";
  for (const auto& [answer, content] : std::vector<std::pair<std::string, std::string>>{
           {"<answer>\nHi\n</answer>", "Hi"},
           {"<answer>\nHi </answer>\n", "Hi"},
           {"\n<answer>Hi </answer>, </answer>\n\n", "Hi </answer>,"},
           {"<answer>\n</answer>", ""},
           {"<answer>\n cut \n</ans", "cut \n</ans"},
           {"<answer>\nHi", "Hi"},
           {"Hi</answer>", "Hi</answer>"},
           {"An <answer>", "An <answer>"},
           {"<answer><answer>a</answer>", "<answer>a"}}) {
    const ParsedOutput parsed = ParseOutput(thinks, thought + answer);
    EXPECT_EQ(parsed.content, content) << answer;
    EXPECT_EQ(parsed.reasoning, "hm") << answer;
    EXPECT_EQ(ParseOutput(told, answer).content, content) << answer;
    EXPECT_EQ(ParseOutput(thinks, answer).content, content) << answer;
  }
  EXPECT_EQ(ParseOutput(With("", "qwen3"), thought + "<answer>\nHi\n</answer>").content,
            "<answer>\nHi\n</answer>");
}

TEST(ReasoningTest, CallsOfHunyuanStandInItsAnswer) {
  const std::string begin = "<think>\nhm\n</think>\n<answer>\n";
  for (const std::string text : {kHunyuanText, kHunyuanListText}) {
    const ParsedOutput parsed =
        ParseOutput(With("hunyuan_a13b", "hunyuan_a13b"), absl::StrCat(begin, text, "\n</answer>"));
    EXPECT_EQ(parsed.reasoning, "hm");
    EXPECT_EQ(parsed.content, "I look.");
    EXPECT_THAT(CallsOf(parsed),
                ElementsAre(Pair("get_weather", R"({"city": "Oslo"})"), Pair("now", "{}")));
  }
}

TEST(ReasoningTest, MuchSpaceAroundTheTagsOfAnAnswerIsTheSameInAnyPieces) {
  for (const size_t spaces : {10, 1000, 1030, 3000}) {
    const std::string space(spaces, ' ');
    const std::string text = absl::StrCat("<think>a</think>", space, "<answer>", space, "b", space,
                                          "</answer>", space, "</answer>", space);
    const OutputParserOptions options = With("", "hunyuan_a13b");
    const std::string whole = InPieces(options, text, text.size());
    for (const size_t bytes : {1, 7, 100}) EXPECT_EQ(InPieces(options, text, bytes), whole);
    EXPECT_EQ(InPieces(With("", "hunyuan_a13b"), space + "<answer>" + text, 7),
              InPieces(With("", "hunyuan_a13b"), space + "<answer>" + text, text.size() * 3));
  }
}

TEST(ReasoningTest, ACallThatBeginsInsideEndsIt) {
  for (const auto& [tool, call] : kCallsInReasoning) {
    OutputParserOptions options = With(tool, ReasoningOf(tool));
    const ReasoningTags tags = TagsOf(options.format.reasoning);
    options.tools = nlohmann::ordered_json::parse(
        R"([{"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}])");
    const std::string text = absl::StrCat("\nI look.\n", call, "\n");
    const ParsedOutput opened = ParseOutput(options, absl::StrCat(tags.open, text));
    EXPECT_EQ(opened.reasoning, "I look.") << tool;
    EXPECT_EQ(opened.content, "") << tool;
    EXPECT_THAT(CallsOf(opened), ElementsAre(Pair("f", R"({"a": 1})"))) << tool;
    options.prompt = std::string(tags.open);
    EXPECT_EQ(ParseOutput(options, text).reasoning, "I look.") << tool;
    EXPECT_EQ(ParseOutput(options, call).tool_calls.size(), 1u) << tool;
    const ParsedOutput late =
        ParseOutput(options, absl::StrCat("I look.", call, "\n", tags.close, "\nSure."));
    EXPECT_EQ(late.reasoning, "I look.") << tool;
    EXPECT_EQ(late.content, "Sure.") << tool;
    EXPECT_EQ(late.tool_calls.size(), 1u) << tool;
    const ParsedOutput closed =
        ParseOutput(options, absl::StrCat("I look.", tags.close, "\nSure.", call));
    EXPECT_EQ(closed.reasoning, "I look.") << tool;
    EXPECT_EQ(closed.content, "Sure.") << tool;
  }
}

TEST(ReasoningTest, ACallStaysInsideWhereNoneIsMeant) {
  const std::string call = kCallsInReasoning[0].second;
  OutputParserOptions options = With("qwen3_coder", "qwen3", "<think>\n");
  EXPECT_EQ(ParseOutput(options, "I write <tool_call> and {}</think>Hi").reasoning,
            "I write <tool_call> and {}");
  // In JSON a call is drafted before it is made.
  const std::string draft = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  for (const char* tool : {"hermes", "qwen3_coder"}) {
    const ParsedOutput parsed =
        ParseOutput(With(tool, "qwen3", "<think>\n"), draft + "?</think>" + draft);
    EXPECT_EQ(parsed.reasoning, draft + "?") << tool;
    EXPECT_EQ(parsed.tool_calls.size(), 1u) << tool;
  }
  options.calls_alone = true;
  EXPECT_EQ(ParseOutput(options, call + "</think>" + call).reasoning, call);
  EXPECT_EQ(ParseOutput(options, call + "</think>" + call).tool_calls.size(), 1u);
  options.calls_alone = options.parse_tool_calls = false;
  EXPECT_EQ(ParseOutput(options, call + "</think>Hi").reasoning, call);
}

TEST(ReasoningTest, AMegabyteInAnAnswerTakesNoTimeThatGrowsWithItsSquare) {
  // Quadratic, it would take minutes: the test's limit is the check.
  for (const char* piece : {" ", "</answer>", "</answe", "\n</answer> "}) {
    InPieces(With("", "hunyuan_a13b"), "<answer>" + Repeated(piece, 150'000), 7);
  }
}

}  // namespace
}  // namespace bulkhead
