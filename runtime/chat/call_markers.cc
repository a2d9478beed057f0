#include "runtime/chat/call_markers.h"

namespace bulkhead {
namespace {

constexpr ArgumentTags Parameters(absl::string_view open_key, absl::string_view close_key,
                                  absl::string_view end, bool has_line_breaks) {
  return {open_key, close_key, "", "</parameter>", end, has_line_breaks, /*guesses_types=*/false};
}

constexpr FunctionTags kQwen = {"<function=", ">",
                                Parameters("<parameter=", ">", "</function>", true)};
constexpr FunctionTags kSeed = {"<function=", ">",
                                Parameters("<parameter=", ">", "</function>", false)};
constexpr FunctionTags kMiniMax = {"<invoke name=\"", "\">",
                                   Parameters("<parameter name=\"", "\">", "</invoke>", false)};
constexpr FunctionTags kGlm = {"",
                               "",
                               {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                                "</tool_call>", /*has_line_breaks=*/false, /*guesses_types=*/true}};
constexpr FunctionTags kPython = {"", "(", {}};
constexpr absl::string_view kOlmoEnd = "</function_calls>";

}  // namespace

CallMarkers MarkersOf(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwen3Coder:
      return {{"<tool_call>"}, 1, {"</tool_call>"}, &kQwen};
    case ToolFormat::kSeedOss:
      return {{"<seed:tool_call>"}, 1, {"</seed:tool_call>"}, &kSeed};
    case ToolFormat::kMiniMaxM2:
      return {{"<minimax:tool_call>"}, 1, {"</minimax:tool_call>"}, &kMiniMax};
    case ToolFormat::kHunyuan:
      return {.markers = {"<tool_calls>", "<tool_call>"},
              .num_opening = 2,
              .ends = {"```", "</tool_call>", "</tool_calls>"},
              .before = BeforeCall::kMayBeHeader,
              .inner = "<tool_call>",
              .may_be_list = true};
    case ToolFormat::kGlm45:
      return {{"<tool_call>"}, 1, {}, &kGlm};
    case ToolFormat::kLlama3Json:
      return {{"<|python_tag|>", "<|python_start|>"}, 2, {";", "<|python_end|>"}};
    case ToolFormat::kMistral:
      return {.markers = {"[TOOL_CALLS]"}, .before = BeforeCall::kMayBeHeader, .may_be_list = true};
    case ToolFormat::kGranite:
      return {.markers = {"<|tool_call|>", "<tool_call>"},
              .num_opening = 2,
              .ends = {"</tool_call>"},
              .may_be_list = true};
    case ToolFormat::kPhi4Mini:
      return {.markers = {"functools[", "<|tool_call|>"},
              .num_opening = 2,
              .ends = {"<|/tool_call|>"},
              .inner = "functools",
              .may_be_list = true};
    case ToolFormat::kCohere:
      return {.markers = {"<|START_ACTION|>"}, .ends = {"<|END_ACTION|>"}, .may_be_list = true};
    case ToolFormat::kGemma4:
      return {.markers = {"<|tool_call>"},
              .ends = {"<tool_call|>"},
              .before = BeforeCall::kHeader,
              .quote = "<|\"|>"};
    case ToolFormat::kFunctionGemma:
      return {.markers = {"<start_function_call>"},
              .ends = {"<end_function_call>"},
              .before = BeforeCall::kHeader,
              .quote = "<escape>"};
    case ToolFormat::kDeepSeek:
      return {
          .markers = {"<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
          .ends = {"```", "<｜tool▁call▁end｜>"},
          .before = BeforeCall::kHeader};
    case ToolFormat::kKimiK2:
      return {.markers = {"<|tool_call_begin|>", "<|tool_calls_section_begin|>",
                          "<|tool_calls_section_end|>"},
              .ends = {"<|tool_call_end|>"},
              .before = BeforeCall::kHeader};
    case ToolFormat::kPythonic:
      return {{"<|python_start|>", "<|python_tag|>"}, 2, {"<|python_end|>"}, &kPython, "]"};
    case ToolFormat::kOlmo3:
      return {{"<function_calls>"}, 1, {kOlmoEnd}, &kPython, kOlmoEnd};
    case ToolFormat::kLfm2:
      return {{"<|tool_call_start|>"}, 1, {"<|tool_call_end|>"}, &kPython, "]"};
    case ToolFormat::kNone:
    case ToolFormat::kHarmony:
      break;
  }
  return {};
}

std::vector<absl::string_view> CallsInReasoning(ToolFormat format) {
  switch (format) {
    case ToolFormat::kQwen3Coder:
      return {"<tool_call>\n<function=", "<tool_call><function="};
    case ToolFormat::kMiniMaxM2:
      return {"<minimax:tool_call>\n<invoke ", "<minimax:tool_call><invoke "};
    case ToolFormat::kGemma4:
      return {"<|tool_call>call:"};
    case ToolFormat::kKimiK2:
      return {"<|tool_calls_section_begin|>"};
    default:
      return {};
  }
}

}  // namespace bulkhead
