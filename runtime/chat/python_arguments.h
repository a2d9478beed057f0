// Converts call arguments in Python's form to JSON text, as they arrive: KEY=VALUE, ...) with
// literals as values: strings, numbers, True, False, None (and JSON's words), lists, tuples, dicts.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

class PythonArguments {
 public:
  // `behind`: a call without arguments must be followed by one of these characters, else it is not
  // a call; empty: by anything. It outlives this.
  explicit PythonArguments(absl::string_view behind) : behind_(behind) {}
  // Call from after the ( on; otherwise like TaggedArguments.
  TaggedArguments::Result Read(std::string* buffer, std::string* out);
  void Finish(absl::string_view buffer, std::string* out);

 private:
  enum class Token { kMore, kTaken, kForeign };

  // Each takes one token off the front of `text`, or leaves `text` unchanged.
  Token ReadToken(absl::string_view* text, std::string* out);
  Token ReadValue(absl::string_view* text, std::string* out);
  Token Close(absl::string_view* text, std::string* out);
  // Up to the end of the string, or of the text so far.
  Token ReadString(absl::string_view* text, std::string* out);

  const absl::string_view behind_;
  std::string levels_ = "f";  // open ones: the call, and [ { (, or t for a ( with a comma
  std::string quote_;         // ends the string; empty outside strings
  bool is_behind_value_ = false;
  bool is_behind_comma_ = false;
  bool is_given_ = false;
};

// The JSON of a list or dict; empty if the text is neither.
std::string PythonLiteralAsJson(absl::string_view text);

}  // namespace bulkhead
