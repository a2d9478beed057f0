// ReasoningParser: takes <think>...</think> off the beginning of a text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/output_delta.h"

namespace bulkhead {

class ReasoningParser {
 public:
  enum class Start {
    kUnknown,      // reasoning if the text begins with <think>
    kInReasoning,  // the prompt opened it; a <think> at the beginning is dropped
    kContent,      // there is none, or the prompt closed it
  };
  explicit ReasoningParser(Start start);

  // Reasoning goes to `out`; returns the content.
  std::string Append(absl::string_view text, std::vector<ParsedDelta>* out);
  std::string Finish(std::vector<ParsedDelta>* out);

 private:
  enum class State { kStart, kReasoning, kContent };

  bool Step(std::vector<ParsedDelta>* out, std::string* content);

  State state_;
  const bool inside_;  // without <think>, the text is reasoning
  std::string buffer_;
  TextWriter reasoning_{ParsedDelta::Kind::kReasoning};
  bool drops_space_ = false;  // of the content, behind </think>
};

// Whether a prompt ends inside of <think>, behind </think>, or neither.
ReasoningParser::Start StartAfterPrompt(absl::string_view prompt, bool inside_unless_told);

}  // namespace bulkhead
