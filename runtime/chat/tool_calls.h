// ToolCallParser: finds the tool calls in a model's output. Formats, after the models' own
// templates and model cards:
//   Hermes, Qwen:  <tool_call>{"name": ..., "arguments": {...}}</tool_call>
//   Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
//   Llama 3:       {"name": ..., "parameters": {...}}, at the beginning or after <|python_tag|>;
//                  more after ;
//   Mistral:       [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or
//                  [TOOL_CALLS]NAME[ARGS]{...}
//   DeepSeek V3:   <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{...}\n```
//                  <｜tool▁call▁end｜>
//   DeepSeek V3.1: <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
//   GLM-4.5:  <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>
//   Hunyuan:  <tool_calls><tool_call>NAME\n```json\n{...}\n```</tool_call> ... </tool_calls>, A13B
//             <tool_calls>[{"name": ..., "arguments": {...}}, ...]</tool_calls>
//   Seed-OSS: <seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function>
//             </seed:tool_call>
//   MiniMax M2: <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter>
//             </invoke> ... </minimax:tool_call>
//   Granite 3: <|tool_call|>[{"name": ..., "arguments": {...}}, ...]
//   Phi-4-mini: functools[{"name": ..., "arguments": {...}}, ...], and the same list or one call
//             between <|tool_call|> and <|/tool_call|>
//   Command:  <|START_ACTION|>[{"tool_name": ..., "parameters": {...}}, ...]<|END_ACTION|>
//   Gemma 4:  <|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>, strings between <|"|>
//   FunctionGemma: <start_function_call>call:NAME{KEY:VALUE,...}<end_function_call>, strings
//             between <escape>
//   Kimi K2:  <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{...}
//             <|tool_call_end|>, all of them in <|tool_calls_section_begin|>, _end|>
//   Llama 3.2 and 4, Gemma 3 with templates of Python's form: [NAME(KEY=VALUE, ...), ...] at the
//             beginning or after <|python_start|>
//   OLMo 3:   <function_calls>NAME(KEY=VALUE, ...)\n...</function_calls>
//   LFM2:     <|tool_call_start|>[NAME(KEY=VALUE, ...), ...]<|tool_call_end|>
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/call_header.h"
#include "runtime/chat/call_json.h"
#include "runtime/chat/call_markers.h"
#include "runtime/chat/gemma_arguments.h"
#include "runtime/chat/output_delta.h"
#include "runtime/chat/python_arguments.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

// A call is emitted once its arguments begin, then as it arrives. If it is broken or cut off before
// that it is content; after that its arguments end there.
class ToolCallParser {
 public:
  // `tools`: the request's, for formats whose values have no types of their own; else null.
  ToolCallParser(ToolFormat format, std::string id_seed, const nlohmann::ordered_json& tools);

  void Append(absl::string_view text, std::vector<ParsedDelta>* out);
  void Finish(std::vector<ParsedDelta>* out);
  int num_calls() const { return num_calls_; }
  // Whether the arguments of that call are JSON; for the last call, those emitted so far.
  bool is_whole(int call) const {
    return call + 1 < num_calls_ ? were_whole_[call] : arguments_.is_whole();
  }

  // Begins a call, perhaps found elsewhere. `name` is not empty; an empty `id` is replaced.
  void BeginCall(const std::string& name, const std::string& id, std::vector<ParsedDelta>* out);
  void AddArguments(absl::string_view piece, std::vector<ParsedDelta>* out);

 private:
  enum class State {
    kStart,    // start of the text: calls without a marker begin here
    kContent,  // looks for a marker
    kOpened,   // after a marker: what follows decides
    kHeader,   // up to the JSON: the name (Mistral, DeepSeek, Kimi, Gemma, Hunyuan)
    kJson,     // inside the JSON of one call
    kList,     // between calls in a list
    kName,     // before arguments in tags
    kTagged,   // inside them
    kAfter,    // after a call: its end, and perhaps another call
  };

  // One step over buffer_; false if it needs more text.
  bool Step(std::vector<ParsedDelta>* out);
  bool StepContent(std::vector<ParsedDelta>* out);
  bool StepOpened(std::vector<ParsedDelta>* out);
  bool StepHeader(std::vector<ParsedDelta>* out);
  bool StepJson(std::vector<ParsedDelta>* out);
  bool StepList(std::vector<ParsedDelta>* out);
  bool StepPythonList(std::vector<ParsedDelta>* out);
  bool StepName(std::vector<ParsedDelta>* out);
  bool StepTagged(std::vector<ParsedDelta>* out);
  bool StepAfter(std::vector<ParsedDelta>* out);
  // Moves bytes from buffer_ to raw_.
  void Take(size_t bytes);
  size_t LeadingSpace() const;
  bool is_python() const { return !markers_.list_end.empty(); }
  std::string name_key() const { return format_ == ToolFormat::kCohere ? "tool_name" : "name"; }
  void BeginJson(CallJsonReader::Shape shape);
  void EndCall();
  // Emits what looked like a call as content.
  void GiveUp(std::vector<ParsedDelta>* out);

  const ToolFormat format_;
  const CallMarkers markers_;
  const std::string id_seed_;
  const ParameterTypes types_;
  State state_;
  std::string buffer_;    // not parsed yet
  std::string raw_;       // the call's text so far, with its marker
  bool in_call_ = false;  // its arguments have begun: raw_ and json_ are empty
  bool in_list_ = false;
  std::string name_, id_;  // from the header
  std::string json_;       // the call's JSON so far
  CallJsonReader reader_{CallJsonReader::Shape::kCall};
  std::optional<TaggedArguments> tagged_;  // the one of these three that the format uses
  std::optional<GemmaArguments> gemma_;
  std::optional<PythonArguments> python_;
  TextWriter content_{ParsedDelta::Kind::kContent};
  int num_calls_ = 0;
  std::vector<bool> were_whole_;  // for the calls before the last
  JsonChecker arguments_;         // of the last call
};

}  // namespace bulkhead
