// Converts call arguments of Gemma 4 and FunctionGemma to JSON as they arrive: {KEY:VALUE,...} with
// bare keys, and strings between <|"|> or <escape>, without escapes.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

class GemmaArguments {
 public:
  // `quote` begins with < and outlives this.
  explicit GemmaArguments(absl::string_view quote) : quote_(quote) {}

  // Call from the { on; otherwise like TaggedArguments.
  TaggedArguments::Result Read(std::string* buffer, std::string* out);
  void Finish(absl::string_view buffer, std::string* out) const;

 private:
  // Reads text outside strings, up to the next punctuation mark.
  TaggedArguments::Result ReadMark(absl::string_view* text, std::string* out);
  TaggedArguments::Result ReadAll(absl::string_view* text, std::string* out);

  absl::string_view quote_;
  bool in_string_ = false;
  bool wants_key_ = false;
  std::vector<bool> levels_;  // open levels; true: an object
};

}  // namespace bulkhead
