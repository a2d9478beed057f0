#include "runtime/chat/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/harmony.h"
#include "runtime/chat/reasoning.h"

namespace bulkhead {
namespace {

using absl::string_view;

bool IsHarmony(string_view text) {
  return absl::StrContains(text, "<|channel|>") && absl::StrContains(text, "<|message|>");
}

// A13B and the dense models; later models have <tool_sep>, and other calls.
bool IsHunyuan(string_view text) {
  return (absl::StrContains(text, "<|extra_0|>") ||
          absl::StrContains(text, "<｜hy_Assistant｜>")) &&
         !absl::StrContains(text, "<tool_sep>");
}

ToolFormat ToolFormatOf(string_view text) {
  if (IsHarmony(text)) return ToolFormat::kHarmony;
  if (absl::StrContains(text, "<｜tool▁call▁begin｜>")) return ToolFormat::kDeepSeek;
  if (absl::StrContains(text, "[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (absl::StrContains(text, "<|tool_call_begin|>")) return ToolFormat::kKimiK2;
  if (absl::StrContains(text, "<seed:tool_call>")) return ToolFormat::kSeedOss;
  if (absl::StrContains(text, "<minimax:tool_call>")) return ToolFormat::kMiniMaxM2;
  if (absl::StrContains(text, "<|START_ACTION|>")) return ToolFormat::kCohere;
  if (absl::StrContains(text, "<|tool_call>call:")) return ToolFormat::kGemma4;
  if (absl::StrContains(text, "<start_function_call>call:")) return ToolFormat::kFunctionGemma;
  if (absl::StrContains(text, "<|tool_call|>") && absl::StrContains(text, "<|start_of_role|>")) {
    return ToolFormat::kGranite;
  }
  // The words of vLLM's template for Phi-4-mini; the model's own has tools, but no calls.
  if (absl::StrContains(text, "functools[") || absl::StrContains(text, "<|/tool|>")) {
    return ToolFormat::kPhi4Mini;
  }
  if (IsHunyuan(text) && absl::StrContains(text, "<tool_calls>")) return ToolFormat::kHunyuan;
  if (absl::StrContains(text, "<tool_call>")) {
    if (absl::StrContains(text, "<arg_key>")) return ToolFormat::kGlm45;
    return absl::StrContains(text, "<function=") ? ToolFormat::kQwen3Coder : ToolFormat::kHermes;
  }
  if (absl::StrContains(text, "<|tool_call_start|>") ||
      absl::StrContains(text, "<|tool_list_start|>")) {
    return ToolFormat::kLfm2;
  }
  // In other formats these contain tags.
  if (absl::StrContains(text, "<function_calls>") && !absl::StrContains(text, "<invoke")) {
    return ToolFormat::kOlmo3;
  }
  // Words in all these templates, for Llama 3.2, Llama 4 and Gemma 3.
  if (absl::StrContains(text, "[func_name1(")) return ToolFormat::kPythonic;
  const bool llama =
      (absl::StrContains(text, "<|start_header_id|>") && absl::StrContains(text, "parameters")) ||
      // Llama 4's own template; those in Python's form have no such key.
      (absl::StrContains(text, "<|header_start|>") && absl::StrContains(text, "\"parameters\""));
  return llama || absl::StrContains(text, "<|python_tag|>") ? ToolFormat::kLlama3Json
                                                            : ToolFormat::kNone;
}

ReasoningFormat ReasoningFormatOf(string_view text) {
  if (IsHarmony(text)) return ReasoningFormat::kHarmony;
  if (absl::StrContains(text, "<|channel>")) return ReasoningFormat::kGemma;
  for (const ReasoningFormat format :
       {ReasoningFormat::kSeed, ReasoningFormat::kMistral, ReasoningFormat::kCohere}) {
    if (absl::StrContains(text, TagsOf(format).open)) return format;
  }
  const bool thinks = absl::StrContains(text, "<think>") || absl::StrContains(text, "</think>");
  if (!thinks) return ReasoningFormat::kNone;
  return IsHunyuan(text) ? ReasoningFormat::kHunyuan : ReasoningFormat::kThinkTags;
}

template <typename Format>
using Names = absl::Span<const std::pair<string_view, Format>>;

constexpr std::pair<string_view, ToolFormat> kToolNames[] = {
    {"none", ToolFormat::kNone},
    {"hermes", ToolFormat::kHermes},
    {"qwen3_coder", ToolFormat::kQwen3Coder},
    {"qwen3_xml", ToolFormat::kQwen3Coder},
    {"seed_oss", ToolFormat::kSeedOss},
    {"minimax_m2", ToolFormat::kMiniMaxM2},
    {"llama3_json", ToolFormat::kLlama3Json},
    {"llama4_json", ToolFormat::kLlama3Json},
    {"mistral", ToolFormat::kMistral},
    {"granite", ToolFormat::kGranite},
    {"granite4", ToolFormat::kHermes},
    {"phi4_mini_json", ToolFormat::kPhi4Mini},
    {"hunyuan_a13b", ToolFormat::kHunyuan},
    {"cohere_command3", ToolFormat::kCohere},
    {"gemma4", ToolFormat::kGemma4},
    {"functiongemma", ToolFormat::kFunctionGemma},
    {"deepseek_v3", ToolFormat::kDeepSeek},
    {"deepseek_v31", ToolFormat::kDeepSeek},
    {"glm45", ToolFormat::kGlm45},
    {"glm47", ToolFormat::kGlm45},
    {"kimi_k2", ToolFormat::kKimiK2},
    {"pythonic", ToolFormat::kPythonic},
    {"llama4_pythonic", ToolFormat::kPythonic},
    {"olmo3", ToolFormat::kOlmo3},
    {"lfm2", ToolFormat::kLfm2},
    {"openai", ToolFormat::kHarmony}};
constexpr std::pair<string_view, ReasoningFormat> kReasoningNames[] = {
    {"none", ReasoningFormat::kNone},
    {"deepseek_r1", ReasoningFormat::kThinkTags},
    {"qwen3", ReasoningFormat::kThinkTags},
    {"glm45", ReasoningFormat::kThinkTags},
    {"kimi_k2", ReasoningFormat::kThinkTags},
    {"minimax_m2", ReasoningFormat::kThinkTags},
    {"hunyuan_a13b", ReasoningFormat::kHunyuan},
    {"seed_oss", ReasoningFormat::kSeed},
    {"mistral", ReasoningFormat::kMistral},
    {"gemma4", ReasoningFormat::kGemma},
    {"cohere_command3", ReasoningFormat::kCohere},
    {"openai_gptoss", ReasoningFormat::kHarmony}};

template <typename Format>
absl::StatusOr<Format> FormatNamed(string_view kind, string_view name, Names<Format> names,
                                   Format of_template) {
  if (name.empty()) return Format::kNone;
  if (name == "auto") return of_template;
  for (const auto& [each, format] : names) {
    if (each == name) return format;
  }
  const auto append = [](std::string* out, const auto& each) { absl::StrAppend(out, each.first); };
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown ", kind, " parser '", name, "': one of auto, ", absl::StrJoin(names, ", ", append)));
}

}  // namespace

absl::StatusOr<OutputFormat> ChooseOutputFormat(string_view tool_parser,
                                                string_view reasoning_parser,
                                                string_view template_text) {
  OutputFormat format;
  BH_ASSIGN_OR_RETURN(format.tool, FormatNamed<ToolFormat>("tool call", tool_parser, kToolNames,
                                                           ToolFormatOf(template_text)));
  BH_ASSIGN_OR_RETURN(format.reasoning,
                      FormatNamed<ReasoningFormat>("reasoning", reasoning_parser, kReasoningNames,
                                                   ReasoningFormatOf(template_text)));
  format.starts_in_reasoning =
      reasoning_parser == "deepseek_r1" || reasoning_parser == "minimax_m2";
  const bool harmony_tools = format.tool == ToolFormat::kHarmony;
  const bool harmony_reasoning = format.reasoning == ReasoningFormat::kHarmony;
  if ((harmony_tools && !TagsOf(format.reasoning).open.empty()) ||
      (harmony_reasoning && !harmony_tools && format.tool != ToolFormat::kNone)) {
    return absl::InvalidArgumentError(absl::StrCat("tool call parser '", tool_parser,
                                                   "' and reasoning parser '", reasoning_parser,
                                                   "' are of different formats"));
  }
  if (harmony_tools || harmony_reasoning) {
    format = {.tool = ToolFormat::kHarmony, .reasoning = ReasoningFormat::kHarmony};
  }
  return format;
}

bool NeedsSpecialTokens(const OutputFormat& format) {
  // <think> and <tool_call> are added tokens, but not special ones.
  return (format.reasoning != ReasoningFormat::kNone &&
          format.reasoning != ReasoningFormat::kThinkTags) ||
         (format.tool != ToolFormat::kNone && format.tool != ToolFormat::kHermes &&
          format.tool != ToolFormat::kQwen3Coder);
}

bool NeedsTools(const OutputFormat& format) {
  return format.tool == ToolFormat::kQwen3Coder || format.tool == ToolFormat::kSeedOss ||
         format.tool == ToolFormat::kMiniMaxM2 || format.tool == ToolFormat::kGlm45;
}

struct OutputParser::State {
  explicit State(OutputParserOptions o)
      : options(std::move(o)),
        calls(options.parse_tool_calls ? options.format.tool : ToolFormat::kNone,
              options.call_id_seed, options.tools),
        reasoning(
            tags(), StartAfterPrompt(tags(), options.prompt, options.format.starts_in_reasoning),
            // If the answer must be a call, it begins after the reasoning.
            options.parse_tool_calls && !options.calls_alone ? CallsInReasoning(options.format.tool)
                                                             : std::vector<string_view>()) {
    options.prompt.clear();
    options.tools = nullptr;
    if (options.format.reasoning == ReasoningFormat::kHarmony) {
      harmony.emplace(&calls, options.parse_tool_calls);
    }
    for (const std::string& token : options.hidden_tokens) {
      if (!token.empty() && !IsStructure(token)) hidden.push_back(token);
    }
    if (options.format.reasoning == ReasoningFormat::kCohere ||
        options.format.tool == ToolFormat::kCohere) {
      hidden.push_back("<|START_RESPONSE|>");
      hidden.push_back("<|END_RESPONSE|>");
    }
  }

  ReasoningTags tags() const { return TagsOf(options.format.reasoning); }

  // Whether the parsers read the token themselves.
  bool IsStructure(const std::string& token) const {
    static constexpr string_view kTokens[] = {"<think>",       "</think>",     "<tool_call>",
                                              "</tool_call>",  "[TOOL_CALLS]", "[ARGS]",
                                              "<|python_tag|>"};
    if (absl::StartsWith(token, "<arg_") || absl::StartsWith(token, "</arg_")) return true;
    for (const string_view each : kTokens) {
      if (each == token) return true;
    }
    return harmony.has_value() || absl::StartsWith(token, "<｜tool") ||
           absl::StartsWith(token, "<|tool_call");
  }

  // `held` without hidden tokens; keeps what may become one.
  std::string Visible(bool last) {
    std::string text;
    size_t which = 0, safe = 0;
    for (size_t at; (at = FindMarker(held, hidden, &which, &safe)) != std::string::npos;) {
      // A longer token may begin earlier: of overlapping markers the first is used.
      text.append(held, 0, at);
      held.erase(0, at + hidden[which].size());
    }
    if (last) safe = held.size();
    text.append(held, 0, safe);
    held.erase(0, safe);
    return text;
  }

  void Feed(const std::string& text, std::vector<ParsedDelta>* out) {
    if (harmony.has_value()) {
      harmony->Append(text, out);
    } else {
      calls.Append(reasoning.Append(text, out), out);
    }
  }

  void DropContent(std::vector<ParsedDelta>* out) const {
    if (!options.calls_alone) return;
    std::erase_if(
        *out, [](const ParsedDelta& delta) { return delta.kind == ParsedDelta::Kind::kContent; });
  }

  OutputParserOptions options;
  ToolCallParser calls;
  ReasoningParser reasoning;
  std::optional<HarmonyParser> harmony;
  std::vector<string_view> hidden;
  std::string held;
};

OutputParser::OutputParser(OutputParserOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;

std::vector<ParsedDelta> OutputParser::Append(string_view text) {
  // In slices: the parsers move and search their unused text.
  constexpr size_t kSliceBytes = 4096;
  std::vector<ParsedDelta> out;
  while (!text.empty()) {
    const string_view slice = WholeCharacters(text, kSliceBytes);
    state_->held.append(slice.data(), slice.size());
    state_->Feed(state_->Visible(/*last=*/false), &out);
    text.remove_prefix(slice.size());
  }
  state_->DropContent(&out);
  return out;
}

std::vector<ParsedDelta> OutputParser::Finish() {
  std::vector<ParsedDelta> out;
  state_->Feed(state_->Visible(/*last=*/true), &out);
  if (state_->harmony.has_value()) {
    state_->harmony->Finish(&out);
  } else {
    state_->calls.Append(state_->reasoning.Finish(&out), &out);
    state_->calls.Finish(&out);
  }
  state_->DropContent(&out);
  return out;
}

int OutputParser::num_tool_calls() const { return state_->calls.num_calls(); }

bool OutputParser::is_call_whole(int call) const { return state_->calls.is_whole(call); }

ParsedOutput ParseOutput(OutputParserOptions options, string_view text) {
  OutputParser parser(std::move(options));
  std::vector<ParsedDelta> deltas = parser.Append(text);
  for (ParsedDelta& delta : parser.Finish()) deltas.push_back(std::move(delta));
  ParsedOutput parsed;
  for (const ParsedDelta& delta : deltas) {
    if (delta.kind == ParsedDelta::Kind::kContent) parsed.content += delta.text;
    if (delta.kind == ParsedDelta::Kind::kReasoning) parsed.reasoning += delta.text;
    if (delta.kind != ParsedDelta::Kind::kToolCall) continue;
    if (!delta.call_name.empty()) {
      const bool is_whole = parser.is_call_whole(delta.call_index);
      parsed.tool_calls.push_back({delta.call_id, delta.call_name, "", is_whole});
    }
    parsed.tool_calls.back().arguments += delta.text;
  }
  return parsed;
}

}  // namespace bulkhead
