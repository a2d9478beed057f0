// Texts of every format as models write them, and what a parser makes of a text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/chat/output_parser.h"

namespace bulkhead {

inline OutputParserOptions With(const std::string& tool, const std::string& reasoning,
                                const std::string& prompt = "") {
  OutputParserOptions options;
  const absl::StatusOr<OutputFormat> format = ChooseOutputFormat(tool, reasoning, "");
  EXPECT_TRUE(format.ok()) << format.status();
  options.format = *format;
  options.prompt = prompt;
  options.call_id_seed = "request-1";
  return options;
}

inline std::vector<std::pair<std::string, std::string>> CallsOf(const ParsedOutput& parsed) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const ToolCall& call : parsed.tool_calls) calls.emplace_back(call.name, call.arguments);
  return calls;
}

inline std::string Describe(const std::vector<ParsedDelta>& deltas) {
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

inline void Extend(std::vector<ParsedDelta>* all, std::vector<ParsedDelta> more) {
  for (ParsedDelta& delta : more) all->push_back(std::move(delta));
}

inline constexpr char kGlmText[] =
    "<think></think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>\"Oslo\""
    "\n</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>zip</arg_key>\n"
    "<arg_value>0150</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>";
// Rendered by the families' templates.
inline constexpr char kSeedText[] =
    "<seed:think>I look.</seed:think>\nSure.\n\n<seed:tool_call>\n<function=get_weather>\n"
    "<parameter=city>Oslo \"N\"\n</parameter>\n<parameter=days>3</parameter>\n</function>\n"
    "</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>";
inline constexpr char kMiniMaxText[] =
    "I look.\n</think>\n\nSure.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n"
    "<parameter name=\"city\">Oslo \"N\"\n</parameter><parameter name=\"days\">3</parameter>"
    "</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>";
inline constexpr char kGraniteText[] =
    "Sure. <|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}, "
    "{\"name\": \"now\", \"arguments\": {}}]";
inline constexpr char kCohereText[] =
    "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
    "\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}},\n\n    "
    "{\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n\n    \n]"
    "<|END_ACTION|>";
inline constexpr char kGemmaText[] =
    "<|channel>thought\nI look.\n<channel|><|tool_call>call:get_weather{at:{lat:59.9,names:["
    "<|\"|>a:\"{b<|\"|>,null,[]]},city:<|\"|>Oslo, N\n<|\"|>,ok:true}<tool_call|>"
    "<|tool_call>call:now{}<tool_call|>Sure.";

inline constexpr char kFunctionGemmaText[] =
    "I look. <start_function_call>call:get_weather{at:{lat:59.9,names:[<escape>a:\"{b<escape>,null,"
    "[]]},city:<escape>Oslo, N\n<escape>,ok:true}<end_function_call>"
    "<start_function_call>call:now{}<end_function_call> Sure.";

inline constexpr char kPhiText[] =
    "I look. functools[{\"name\": \"get_weather\", \"arguments\": {\"cities\": [\"Oslo [N]\"]}}, "
    "{\"name\": \"now\", \"arguments\": {}}]";

inline constexpr char kHunyuanText[] =
    "I look.<tool_calls><tool_call>get_weather\n```json\n{\"city\": \"Oslo\"}\n```</tool_call>\n"
    "<tool_call>now\n```json\n{}\n```</tool_call></tool_calls>";
inline constexpr char kHunyuanListText[] =
    "I look. <tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}, "
    "{\"name\": \"now\", \"arguments\": {}}]</tool_calls>";

inline constexpr char kKimiText[] =
    "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    "<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions."
    "now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";

struct Sample {
  OutputParserOptions options;
  std::string text;
};

inline constexpr char kDeepSeekText[] =
    "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
    "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
inline constexpr char kHarmonyText[] =
    "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant<|channel|>commentary "
    "to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>";

// Reasoning that a call ends.
inline constexpr std::pair<const char*, const char*> kCallsInReasoning[] = {
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n"
     "</minimax:tool_call>"},
    {"gemma4", "<|tool_call>call:f{a:1}<tool_call|>"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>"},
};

inline std::string ReasoningOf(const std::string& tool) {
  return tool == "qwen3_coder" ? "qwen3" : tool;
}

inline std::vector<Sample> SamplesOfFamilies() {
  std::vector<Sample> samples = {
      {With("seed_oss", "seed_oss"), kSeedText},
      {With("seed_oss", "", "x"), "<seed:tool_call> <function=f <parameter=a>1</parameter>"},
      {With("minimax_m2", "minimax_m2"), kMiniMaxText},
      {With("minimax_m2", ""),
       "<minimax:tool_call><invoke name=\"f\"></invoke>\n<invoke name=\"a b\"> and <invoke nam"},
      {With("minimax_m2", ""), "<minimax:tool_call><invoke name=\"f\"></invoke>\n<invoke nam"},
      {With("granite", ""), kGraniteText},
      {With("granite", ""), "x <tool_call> [{\"name\": \"f\", \"arguments\": {}}] <|tool_call|> y"},
      {With("cohere_command3", "cohere_command3"), kCohereText},
      {With("cohere_command3", "cohere_command3"), "<|START_RESPONSE|>Hi <b>.<|END_RESPONSE|>"},
      {With("gemma4", "gemma4"), kGemmaText},
      {With("gemma4", ""), "a <|tool_call>call:f{a:<|\"|>b<tool_call|> {c"},
      {With("gemma4", ""), "<|tool_call>call:f{a:b c,d:[1 2, {e]<tool_call|> then <|tool_call>f{}"},
      {With("gemma4", ""), "<|tool_call>call:f{a:1,b:<tool_call|>x"},
      {With("mistral", "mistral"), "[THINK]I look.[/THINK]Sure.[TOOL_CALLS]now[ARGS]{}"},
      {With("llama4_json", ""),
       "<|python_start|>{\"name\": \"f\", \"parameters\": {}}<|python_end|>"
       "{\"name\": \"g\", \"parameters\": {}}"},
      {With("phi4_mini_json", ""), kPhiText},
      {With("phi4_mini_json", ""),
       "<|tool_call|>[{\"name\": \"f\", \"parameters\": {\"a\": 1}}]<|/tool_call|>Done. "
       "<|tool_call|>{\"name\": \"g\", \"arguments\": {}}<|/tool_call|>functools[ {\"x\": 1}] y"},
      {With("phi4_mini_json", ""),
       "<|tool_call|>functools[{\"name\": \"f\", \"arguments\": "
       "{}}]<|/tool_call|><|tool_call|>func"},
      {With("phi4_mini_json", ""), "import functools\nfunctools[] <|tool_call|>f<|/tool_"},
      {With("hunyuan_a13b", ""), kHunyuanText},
      {With("hunyuan_a13b", ""), kHunyuanListText},
      {With("hunyuan_a13b", "hunyuan_a13b"),
       absl::StrCat("<think>\nhm\n</think>\n<answer>\n", kHunyuanText, "\n</answer>\n")},
      {With("hunyuan_a13b", "hunyuan_a13b", "<think>\n\n</think>\n"),
       "\n<answer> Hi </answer>, \n</answer> \n</ans"},
      {With("", "hunyuan_a13b"), "<think>a</think>\n<answe r> \n </answer>"},
      {With("hunyuan_a13b", ""),
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><tool_calls>\n<tool_call>g "
       "{}"
       "</tool_calls> and <tool_calls>f{} <tool_calls><tool_c"},
      {With("functiongemma", ""), kFunctionGemmaText},
      {With("functiongemma", ""),
       "<start_function_call>call:f{a:<escape>b<end_function_call> {<escap"},
      {With("functiongemma", ""), "<start_function_call>call:f{a:1,b:<end_function_call>x<start_f"},
  };
  for (const auto& [tool, call] : kCallsInReasoning) {
    const OutputParserOptions options = With(tool, ReasoningOf(tool));
    const std::string open(TagsOf(options.format.reasoning).open);
    samples.push_back({options, absl::StrCat(open, "\nI look.\n", call, "\n", call, " bye")});
    const std::string close(TagsOf(options.format.reasoning).close);
    samples.push_back({options, absl::StrCat(open, call, "\n", close, "Hi", close, close)});
  }
  return samples;
}

inline std::vector<Sample> SamplesOfPython() {
  return {
      {With("pythonic", ""),
       " [get_weather(city=\"Paris \\\"N\\\"\", days=-3, at={'lat': 5_9., 1: (None, True)}), f()]"},
      {With("llama4_pythonic", ""), "<|python_start|>[f(a='''x''y\\''''),g( )]<|python_end|>"},
      {With("pythonic", ""),
       "[f(a='\\x41\\u00e9\\U0001F600\\12\\q\\x4', b=[[], [1,], ], ),\n g(a=x)] y"},
      {With("pythonic", ""), "[f(a=1, b=g(c=1)), h()] "},
      {With("pythonic", ""), "[f() and [g(a=(1))]"},
      {With("pythonic", ""), "[f(a='cut \\u00"},
      {With("pythonic", ""), "[f(a=1), b=12"},
      {With("olmo3", ""),
       "Sure. <function_calls>\nf(a='x', b=null)\ng()\n</function_calls> h() <function_calls>\nh()"
       "</func"},
      {With("olmo3", ""), "<function_calls>f(a='</function_calls>')\nis no call</function_calls>"},
      {With("lfm2", ""),
       "I look.<|tool_call_start|>[f(a='x'), g()]<|tool_call_end|>Sure.<|tool_call_start|>[f"},
  };
}

inline std::vector<Sample> Samples() {
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
  for (Sample& sample : SamplesOfFamilies()) samples.push_back(std::move(sample));
  for (Sample& sample : SamplesOfPython()) samples.push_back(std::move(sample));
  return samples;
}

inline std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

inline std::string InPieces(const OutputParserOptions& options, const std::string& text,
                            size_t bytes) {
  OutputParser parser(options);
  std::vector<ParsedDelta> deltas;
  for (size_t at = 0; at < text.size(); at += bytes) {
    Extend(&deltas, parser.Append(text.substr(at, bytes)));
  }
  Extend(&deltas, parser.Finish());
  return Describe(deltas);
}

}  // namespace bulkhead
