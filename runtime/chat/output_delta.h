// What output parsers emit: pieces of the message of the OpenAI API.
#pragma once

#include <string>

namespace bulkhead {

struct ParsedDelta {
  enum class Kind { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // content, reasoning, or the next part of the call's arguments (JSON)
  // For kToolCall. The first delta of a call has its id and name, later ones have neither.
  int call_index = 0;
  std::string call_id;
  std::string call_name;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as the model wrote it, or as converted from its format
};

}  // namespace bulkhead
