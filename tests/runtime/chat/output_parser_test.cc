#include "runtime/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

OutputParserOptions With(const std::string& tool, const std::string& reasoning,
                         const std::string& prompt = "") {
  OutputParserOptions options;
  const absl::StatusOr<OutputFormat> format = ChooseOutputFormat(tool, reasoning, "");
  EXPECT_TRUE(format.ok()) << format.status();
  options.format = *format;
  options.prompt = prompt;
  options.call_id_seed = "request-1";
  return options;
}

std::vector<std::pair<std::string, std::string>> CallsOf(const ParsedOutput& parsed) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const ToolCall& call : parsed.tool_calls) calls.emplace_back(call.name, call.arguments);
  return calls;
}

std::string Describe(const std::vector<ParsedDelta>& deltas) {
  std::string content, reasoning, calls;
  for (const ParsedDelta& delta : deltas) {
    if (delta.kind == ParsedDelta::Kind::kContent) content += delta.text;
    if (delta.kind == ParsedDelta::Kind::kReasoning) reasoning += delta.text;
    if (delta.kind == ParsedDelta::Kind::kToolCall) {
      absl::StrAppend(&calls, delta.call_index, delta.call_id, delta.call_name, delta.text, ";");
    }
  }
  return absl::StrCat("C:", content, "\nR:", reasoning, "\nT:", calls);
}

void Extend(std::vector<ParsedDelta>* all, std::vector<ParsedDelta> more) {
  for (ParsedDelta& delta : more) all->push_back(std::move(delta));
}

struct Sample {
  OutputParserOptions options;
  std::string text;
};

const char kDeepSeekText[] =
    "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
    "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
const char kHarmonyText[] =
    "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant<|channel|>commentary "
    "to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>";

std::vector<Sample> Samples() {
  std::vector<Sample> samples = {
      {With("hermes", "qwen3"),
       "<think>\nlet me see\n</think>\n\nSure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{\"a\": \"}</tool_call>\"}}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>"},
      {With("hermes", "none"),
       "a < b <tool_call> is a tag, <tool_call>{\"x\": 1}</tool_call> too "},
      {With("hermes", "none"), "cut <tool_call>{\"name\": \"f\", \"arg"},
      {With("hermes", "none"), "bad <tool_call>{\"name\": </tool_call> more"},
      {With("none", "deepseek_r1"), "thinking </thin </think> answer\n"},
      {With("none", "deepseek_r1", "x<think>\n"), "only thinking"},
      {With("none", "qwen3", "<think>\n\n</think>\n\n"), "<think> is content here"},
      {With("llama3_json", ""),
       " {\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}; {\"name\": "
       "\"g\", \"parameters\": {}}"},
      {With("llama3_json", ""), "<|python_tag|>{\"name\": \"f\", \"parameters\": {}} "},
      {With("llama3_json", ""), "{not json} at all"},
      {With("mistral", ""),
       "Hi[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, "
       "{\"name\": \"g\", \"arguments\": {}}]"},
      {With("mistral", ""), "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}"},
      {With("deepseek_v3", "deepseek_r1", "<think>\n"), absl::StrCat("hm</think>", kDeepSeekText)},
      {With("deepseek_v31", ""),
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {With("qwen3_coder", ""),
       "Now.\n<tool_call>\n<function=f>\n<parameter=text>\nline 1\nline "
       "\"2\"\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n"
       "</tool_call> done"},
      {With("openai", "openai_gptoss"), kHarmonyText},
      {With("openai", ""),
       "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>"
       "final<|message|>It is <b>.<|return|>"},
      {With("openai", ""), " to=functions.f<|channel|>commentary json<|message|>not json<|call|>"},
      {With("openai", ""), "a text without channels"},
  };
  samples.push_back(samples[0]);
  samples.back().options.hidden_tokens = {"<|im_end|>", "<|endoftext|>"};
  samples.back().text += "<|im_end|>";
  return samples;
}

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

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string InPieces(const OutputParserOptions& options, const std::string& text, size_t bytes) {
  OutputParser parser(options);
  std::vector<ParsedDelta> deltas;
  for (size_t at = 0; at < text.size(); at += bytes) {
    Extend(&deltas, parser.Append(text.substr(at, bytes)));
  }
  Extend(&deltas, parser.Finish());
  return Describe(deltas);
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
  OutputParser spaces(With("none", "qwen3"));
  for (int i = 0; i < 20'000; ++i) spaces.Append(std::string(64, ' '));
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
