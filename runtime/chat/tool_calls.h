// ToolCallParser: finds the tool calls in what a model writes. Formats, after the models' own
// templates and model cards:
//   Hermes, Qwen:  <tool_call>{"name": ..., "arguments": {...}}</tool_call>
//   Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
//   Llama 3:       {"name": ..., "parameters": {...}}, at the beginning or behind <|python_tag|>;
//                  more behind ;
//   Mistral:       [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or
//   [TOOL_CALLS]NAME[ARGS]{...} DeepSeek V3:
//   <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{...}\n```<｜tool▁call▁end｜>
//   DeepSeek V3.1: <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/json.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/output_delta.h"

namespace bulkhead {

// Of the JSON of one call.
inline constexpr JsonLimits kCallLimits{.max_depth = 64, .max_values = 200'000};

// kDeepSeek is V3 and V3.1: the two are told apart as they come.
enum class ToolFormat { kNone, kHermes, kQwen3Coder, kLlama3Json, kMistral, kDeepSeek, kHarmony };

// Ids of calls: equal for equal seeds and indices. `short_form`: the nine characters that Mistral's
// templates ask for.
std::string ToolCallId(absl::string_view seed, int index, bool short_form);

// Where a JSON object or list ends, byte by byte.
class JsonSpan {
 public:
  // True with the byte that closes it. The first byte must be { or [.
  bool Add(char c);
  bool in_string() const { return in_string_; }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

class ToolCallParser {
 public:
  ToolCallParser(ToolFormat format, std::string id_seed, const nlohmann::ordered_json& tools);

  void Append(absl::string_view text, std::vector<ParsedDelta>* out);
  void Finish(std::vector<ParsedDelta>* out);
  int num_calls() const { return num_calls_; }

  // A call that was found elsewhere.
  void GiveCall(const std::string& name, const std::string& arguments,
                std::vector<ParsedDelta>* out);
  // Whether JSON text is a call {"name", "arguments" or "parameters"}, taken apart.
  static bool ReadCall(absl::string_view json, std::string* name, std::string* arguments);

 private:
  enum class State {
    kStart,     // of the text: Llama's calls begin here
    kContent,   // looks for a marker
    kOpened,    // behind a marker: what follows decides
    kHeader,    // up to the JSON: the name (Mistral, DeepSeek)
    kJson,      // inside the JSON
    kFunction,  // inside <function=...>
    kAfter,     // behind a call: its end, and perhaps another call
  };

  // One step over buffer_; false if it needs more text.
  bool Step(std::vector<ParsedDelta>* out);
  bool StepContent(std::vector<ParsedDelta>* out);
  bool StepOpened(std::vector<ParsedDelta>* out);
  bool StepHeader(std::vector<ParsedDelta>* out);
  bool StepJson(std::vector<ParsedDelta>* out);
  bool StepFunction(std::vector<ParsedDelta>* out);
  bool StepAfter();
  std::vector<absl::string_view> Markers() const;
  // Moves bytes from buffer_ to raw_.
  void Take(size_t bytes);
  size_t LeadingSpace() const;
  void BeginJson();
  bool EndJson(std::vector<ParsedDelta>* out);
  // What looked like a call is content.
  void GiveUp(std::vector<ParsedDelta>* out);
  std::string ParameterJson(const std::string& function, const std::string& key,
                            const std::string& value) const;

  const ToolFormat format_;
  const std::string id_seed_;
  // Function and parameter, where a tool's schema has another type: of Qwen3-Coder alone.
  absl::flat_hash_set<std::pair<std::string, std::string>> not_strings_;
  State state_;
  std::string buffer_;  // not looked at yet
  std::string raw_;     // of the call so far, with its marker
  std::string name_;    // from the header
  std::string json_;
  JsonSpan span_;
  size_t searched_ = 0;  // bytes of buffer_ in which </function> does not begin
  TextWriter content_{ParsedDelta::Kind::kContent};
  int num_calls_ = 0;
};

}  // namespace bulkhead
