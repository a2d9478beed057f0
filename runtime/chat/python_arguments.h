// The arguments of calls in Python's form, as JSON text as they come: KEY=VALUE, ...) with literals
// as values: strings, numbers, True, False, None (and JSON's words), lists, tuples, dicts.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

class PythonArguments {
 public:
  // `behind`: what comes next begins with one of these where a call has no arguments, else it is
  // none; empty: with anything. It outlives this.
  explicit PythonArguments(absl::string_view behind) : behind_(behind) {}
  // From behind the ( on; otherwise as TaggedArguments.
  TaggedArguments::Result Read(std::string* buffer, std::string* out);
  void Finish(absl::string_view buffer, std::string* out);

 private:
  enum class Token { kMore, kTaken, kForeign };

  // Each takes one token off the front of `text`, or leaves this as it was.
  Token ReadToken(absl::string_view* text, std::string* out);
  Token ReadValue(absl::string_view* text, std::string* out);
  Token Close(absl::string_view* text, std::string* out);
  // Up to the end of the string, or of what is there.
  Token ReadString(absl::string_view* text, std::string* out);

  const absl::string_view behind_;
  std::string levels_ = "f";  // that are open: the call, and [ { (, or t for a ( with a comma
  std::string quote_;         // that ends the string; empty outside of strings
  bool is_behind_value_ = false;
  bool is_behind_comma_ = false;
  bool is_given_ = false;
};

// The JSON of a list or dict; empty where the text is none.
std::string PythonLiteralAsJson(absl::string_view text);

}  // namespace bulkhead
