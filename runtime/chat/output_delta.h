// What output parsers emit: pieces of the message of the OpenAI API.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

struct ParsedDelta {
  enum class Kind { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // content, reasoning, or a piece of the arguments of the call (JSON)
  // For kToolCall. A call's first delta has only its id and name, later ones only arguments.
  int call_index = 0;
  std::string call_id;
  std::string call_name;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as the model wrote it, or as converted from its format
  bool is_whole = true;   // the arguments are JSON
};

// Maximum held back of a call whose arguments have not begun; beyond this it is content.
inline constexpr size_t kMaxCallBytes = 1 << 20;

// Where the first of `markers` begins in `text`; npos if none does, and then `*safe` is the number
// of bytes that no marker can begin in. Of several markers at one place, the longest.
size_t FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers,
                  size_t* which, size_t* safe);

// Whether `text` is a proper prefix of `word`.
bool MayBecome(absl::string_view text, absl::string_view word);

// Emits text of one kind, holding back white space at its end: beside a call it is emitted only if
// text is on both sides of the call, and then once.
class TextWriter {
 public:
  explicit TextWriter(ParsedDelta::Kind kind) : kind_(kind) {}
  void Write(absl::string_view text, std::vector<ParsedDelta>* out);
  // Marks a call, or the beginning of the text. Of the white space around it, what follows is used,
  // or, if there is none, what was held back.
  void BesideCall();
  // Call at the end: emits the white space held back, except after a call.
  void Flush(std::vector<ParsedDelta>* out);
  bool any() const { return any_; }

 private:
  void Give(absl::string_view text, std::vector<ParsedDelta>* out);

  const ParsedDelta::Kind kind_;
  std::string held_;
  bool is_beside_call_ = false;
  bool may_replace_held_ = false;
  bool any_ = false;
};

}  // namespace bulkhead
