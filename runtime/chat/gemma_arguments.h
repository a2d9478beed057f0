// The arguments of calls of Gemma 4 and FunctionGemma, as JSON text as they come: {KEY:VALUE,...}
// with bare keys, and strings between quotes, <|"|> or <escape>, which escape nothing.
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

  // From the { on; otherwise as TaggedArguments.
  TaggedArguments::Result Read(std::string* buffer, std::string* out);
  void Finish(absl::string_view buffer, std::string* out) const;

 private:
  // Of what stands outside of strings, up to the next of its marks.
  TaggedArguments::Result ReadMark(absl::string_view* text, std::string* out);
  TaggedArguments::Result ReadAll(absl::string_view* text, std::string* out);

  absl::string_view quote_;
  bool in_string_ = false;
  bool wants_key_ = false;
  std::vector<bool> levels_;  // that are open; true: an object
};

}  // namespace bulkhead
