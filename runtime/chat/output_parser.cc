#include "runtime/chat/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/harmony.h"
#include "runtime/chat/reasoning.h"

namespace bulkhead {
namespace {

using absl::string_view;

bool IsHarmony(string_view text) {
  return absl::StrContains(text, "<|channel|>") && absl::StrContains(text, "<|message|>");
}

ToolFormat ToolFormatOf(string_view text) {
  if (IsHarmony(text)) return ToolFormat::kHarmony;
  if (absl::StrContains(text, "<｜tool▁call▁begin｜>")) return ToolFormat::kDeepSeek;
  if (absl::StrContains(text, "[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (absl::StrContains(text, "<|tool_call_begin|>")) return ToolFormat::kKimiK2;
  if (absl::StrContains(text, "<tool_call>")) {
    if (absl::StrContains(text, "<arg_key>")) return ToolFormat::kGlm45;
    return absl::StrContains(text, "<function=") ? ToolFormat::kQwen3Coder : ToolFormat::kHermes;
  }
  const bool llama =
      absl::StrContains(text, "<|start_header_id|>") && absl::StrContains(text, "parameters");
  return llama || absl::StrContains(text, "<|python_tag|>") ? ToolFormat::kLlama3Json
                                                            : ToolFormat::kNone;
}

absl::StatusOr<ToolFormat> ToolFormatNamed(string_view name, string_view template_text) {
  static constexpr std::pair<string_view, ToolFormat> kNames[] = {
      {"", ToolFormat::kNone},
      {"none", ToolFormat::kNone},
      {"hermes", ToolFormat::kHermes},
      {"qwen3_coder", ToolFormat::kQwen3Coder},
      {"llama3_json", ToolFormat::kLlama3Json},
      {"mistral", ToolFormat::kMistral},
      {"deepseek_v3", ToolFormat::kDeepSeek},
      {"deepseek_v31", ToolFormat::kDeepSeek},
      {"glm45", ToolFormat::kGlm45},
      {"kimi_k2", ToolFormat::kKimiK2},
      {"openai", ToolFormat::kHarmony}};
  if (name == "auto") return ToolFormatOf(template_text);
  for (const auto& [each, format] : kNames) {
    if (each == name) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown tool call parser '", name,
                   "': one of auto, none, hermes, qwen3_coder, llama3_json, "
                   "mistral, deepseek_v3, deepseek_v31, glm45, kimi_k2, openai"));
}

}  // namespace

absl::StatusOr<OutputFormat> ChooseOutputFormat(string_view tool_parser,
                                                string_view reasoning_parser,
                                                string_view template_text) {
  OutputFormat format;
  BH_ASSIGN_OR_RETURN(format.tool, ToolFormatNamed(tool_parser, template_text));
  if (reasoning_parser == "auto") {
    if (IsHarmony(template_text)) {
      format.reasoning = ReasoningFormat::kHarmony;
    } else if (absl::StrContains(template_text, "<think>") ||
               absl::StrContains(template_text, "</think>")) {
      format.reasoning = ReasoningFormat::kThinkTags;
    }
  } else if (reasoning_parser == "deepseek_r1" || reasoning_parser == "qwen3" ||
             reasoning_parser == "glm45" || reasoning_parser == "kimi_k2") {
    format.reasoning = ReasoningFormat::kThinkTags;
    format.starts_in_reasoning = reasoning_parser == "deepseek_r1";
  } else if (reasoning_parser == "openai_gptoss") {
    format.reasoning = ReasoningFormat::kHarmony;
  } else if (!reasoning_parser.empty() && reasoning_parser != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown reasoning parser '", reasoning_parser,
                     "': one of auto, none, deepseek_r1, qwen3, glm45, kimi_k2, openai_gptoss"));
  }
  const bool harmony_tools = format.tool == ToolFormat::kHarmony;
  const bool harmony_reasoning = format.reasoning == ReasoningFormat::kHarmony;
  if ((harmony_tools && format.reasoning == ReasoningFormat::kThinkTags) ||
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
  return format.reasoning == ReasoningFormat::kHarmony || format.tool == ToolFormat::kHarmony ||
         format.tool == ToolFormat::kLlama3Json || format.tool == ToolFormat::kMistral ||
         format.tool == ToolFormat::kDeepSeek || format.tool == ToolFormat::kGlm45 ||
         format.tool == ToolFormat::kKimiK2;
}

bool NeedsTools(const OutputFormat& format) {
  return format.tool == ToolFormat::kQwen3Coder || format.tool == ToolFormat::kGlm45;
}

struct OutputParser::State {
  explicit State(OutputParserOptions o)
      : options(std::move(o)),
        calls(options.parse_tool_calls ? options.format.tool : ToolFormat::kNone,
              options.call_id_seed, options.tools),
        reasoning(options.format.reasoning == ReasoningFormat::kThinkTags
                      ? StartAfterPrompt(options.prompt, options.format.starts_in_reasoning)
                      : ReasoningParser::Start::kContent) {
    options.prompt.clear();
    options.tools = nullptr;
    if (options.format.reasoning == ReasoningFormat::kHarmony) {
      harmony.emplace(&calls, options.parse_tool_calls);
    }
    for (const std::string& token : options.hidden_tokens) {
      if (!token.empty() && !IsStructure(token)) hidden.push_back(token);
    }
  }

  // Tokens that the parsers read themselves.
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
      // A longer token may begin before: markers that overlap are given to the first.
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
  // In slices: the parsers move and search what they have not used yet.
  constexpr size_t kSliceBytes = 4096;
  std::vector<ParsedDelta> out;
  while (!text.empty()) {
    size_t bytes = std::min(kSliceBytes, text.size());
    while (bytes > 1 && bytes < text.size() && (text[bytes] & 0xC0) == 0x80) --bytes;
    state_->held.append(text.data(), bytes);
    state_->Feed(state_->Visible(/*last=*/false), &out);
    text.remove_prefix(bytes);
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
