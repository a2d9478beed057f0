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
  int num_calls = 0;
  for (const ParsedDelta& delta : deltas) {
    if (delta.kind == ParsedDelta::Kind::kContent) content += delta.text;
    if (delta.kind == ParsedDelta::Kind::kReasoning) reasoning += delta.text;
    if (delta.kind != ParsedDelta::Kind::kToolCall) continue;
    if (!delta.call_name.empty()) {
      EXPECT_EQ(delta.text, "");
      EXPECT_EQ(delta.call_index, num_calls++);
      absl::StrAppend(&calls, "\n", delta.call_id, " ", delta.call_name, " ");
    }
    EXPECT_EQ(delta.call_index, num_calls - 1);
    EXPECT_EQ(delta.call_id.empty(), delta.call_name.empty());
    calls += delta.text;
  }
  return absl::StrCat("C:", content, "\nR:", reasoning, "\nT:", calls);
}

void Extend(std::vector<ParsedDelta>* all, std::vector<ParsedDelta> more) {
  for (ParsedDelta& delta : more) all->push_back(std::move(delta));
}

const char kGlmText[] =
    "<think></think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>\"Oslo\""
    "\n</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>zip</arg_key>\n"
    "<arg_value>0150</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>";
const char kKimiText[] =
    "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    "<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions."
    "now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";

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
      {With("glm45", "glm45"), kGlmText},
      {With("glm45", ""), "x <tool_call>is no call</tool_call> <tool_call>f<arg_key>a</arg_key> b"},
      {With("glm45", ""), "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>cut </arg_val"},
      {With("glm45", ""),
       "<tool_call>f<arg_key>a</arg_key><arg_value>[1, 2</arg_value>then</tool_call>"},
      {With("kimi_k2", ""), kKimiText},
      {With("kimi_k2", ""), "<|tool_call_begin|>a b<|tool_call_argument_begin|>{} and"},
      {With("kimi_k2", ""),
       "<|tool_call_begin|>f<|tool_call_argument_begin|> {\"a\": <|tool_call_end|>"},
      {With("hermes", ""), "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"cut"},
      {With("hermes", ""),
       "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call><tool_call>{\"name\": "
       "\"g\", \"arguments\": \"{\\\"b\\\": 2}\"}</tool_call>"},
      {With("hermes", ""),
       "<tool_call>{\"id\": {\"name\": \"x\"}, \"name\": \"f\", \"arguments\": {\"a\": "
       "</tool_call>b"},
      {With("hermes", ""),
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"arguments\": {\"b\": 2}}\n"
       "</tool_call>x<tool_call>{\"name\": \"g\", \"arguments\": {} and so on"},
      {With("mistral", ""),
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"x\": 1}] and [TOOL_CALLS][] then"},
      {With("qwen3_coder", ""),
       "<tool_call><function=f><parameter=a>\n1\n\n</parameter> no <parameter=b>2</parameter>"},
      {With("qwen3_coder", ""), "<function=f> <tool_call><function=f>\n</function></tool_call>"},
      {With("openai", ""),
       "<|channel|>commentary to=functions.f<|message|> {\"a\": 1 <|end|><|channel|>commentary "
       "to=functions.g<|message|>\n{ } \n<|call|>"},
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

TEST(OutputParserTest, TextsWithRandomChangesAreTheSameHoweverCut) {
  const std::vector<std::string> pieces = {"<tool_call>",
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
                                           "<think>",
                                           "</think>",
                                           "<"};
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
        text.insert(std::min(at, text.size()), pieces[random(pieces.size())]);
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
