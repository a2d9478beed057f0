// HarmonyParser: the messages of gpt-oss's output,
// <|channel|>NAME<|message|>TEXT<|end|><|start|>assistant<|channel|>..., whose channels are
// analysis (reasoning), commentary (calls, to=functions.NAME, and preambles) and final. Format:
// https://cookbook.openai.com/articles/openai-harmony
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/output_delta.h"
#include "runtime/chat/tool_calls.h"

namespace bulkhead {

class HarmonyParser {
 public:
  // `calls` gets the calls and outlives the parser; if not `parse_tool_calls`, a call's text is
  // content.
  HarmonyParser(ToolCallParser* calls, bool parse_tool_calls)
      : calls_(calls), parse_tool_calls_(parse_tool_calls) {}

  void Append(absl::string_view text, std::vector<ParsedDelta>* out);
  void Finish(std::vector<ParsedDelta>* out);

 private:
  enum class State { kHeader, kBody };
  enum class Kind { kReasoning, kContent, kCall };

  bool Step(std::vector<ParsedDelta>* out);
  bool StepHeader(std::vector<ParsedDelta>* out);
  void ReadHeader(absl::string_view header);
  void BeginBody(std::vector<ParsedDelta>* out);
  void AddBody(absl::string_view text, std::vector<ParsedDelta>* out);
  void AddCall(absl::string_view text, std::vector<ParsedDelta>* out);

  ToolCallParser* const calls_;
  const bool parse_tool_calls_;
  State state_ = State::kHeader;
  bool first_ = true;    // the header that the prompt began
  bool closed_ = false;  // a message has ended, and none has begun
  Kind kind_ = Kind::kContent;
  std::string buffer_;
  std::string function_;
  bool in_call_ = false;  // its arguments have begun
  TextWriter reasoning_{ParsedDelta::Kind::kReasoning};
  TextWriter content_{ParsedDelta::Kind::kContent};
};

}  // namespace bulkhead
