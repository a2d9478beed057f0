// ReasoningParser: removes <think>...</think>, or the format's equivalent, from the beginning of a
// text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/output_delta.h"

namespace bulkhead {

enum class ReasoningFormat {
  kNone,
  kThinkTags,  // <think>...</think>, which the model opens or the prompt left open
  kHunyuan,    // the same, with the answer in <answer>...</answer>
  kSeed,
  kMistral,
  kGemma,
  kCohere,
  kHarmony,
};

struct ReasoningTags {
  absl::string_view open, close;
  // Around the answer after it, up to the end; empty if there are none.
  absl::string_view open_answer = "", close_answer = "";
};
// Empty if the format has none: kNone, kHarmony.
ReasoningTags TagsOf(ReasoningFormat format);

class ReasoningParser {
 public:
  enum class Start {
    kUnknown,      // reasoning if the text begins with the opening tag
    kInReasoning,  // the prompt opened it; an opening tag at the beginning is dropped
    kContent,      // no reasoning, or the prompt closed it
  };
  // `calls`: texts that also end the reasoning, and are content.
  ReasoningParser(ReasoningTags tags, Start start, std::vector<absl::string_view> calls = {});

  // Reasoning goes to `out`; returns the content.
  std::string Append(absl::string_view text, std::vector<ParsedDelta>* out);
  std::string Finish(std::vector<ParsedDelta>* out);

 private:
  enum class State { kStart, kReasoning, kBeforeContent, kContent };

  bool Step(std::vector<ParsedDelta>* out, std::string* content);
  bool StepReasoning(std::vector<ParsedDelta>* out);
  bool StepBeforeContent();

  const ReasoningTags tags_;
  std::vector<absl::string_view> ends_;  // of the reasoning; the first is the closing tag
  State state_;
  const bool inside_;  // text without the tag is reasoning
  std::string buffer_;
  TextWriter reasoning_{ParsedDelta::Kind::kReasoning};
  bool drops_space_ = false;  // of the content, after the preceding tag
  bool in_answer_ = false;    // its end tag is not content
  bool may_close_ = false;    // a call ended the reasoning: its closing tag may still come
};

// Whether a prompt ends inside the tags, after them, or neither.
ReasoningParser::Start StartAfterPrompt(ReasoningTags tags, absl::string_view prompt,
                                        bool inside_unless_told);

}  // namespace bulkhead
