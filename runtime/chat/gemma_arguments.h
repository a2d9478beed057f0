// The arguments of calls of Gemma 4, as JSON text as they come: {KEY:VALUE,...} with bare keys, and
// strings between <|"|>, which escape nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

class GemmaArguments {
 public:
  // From the { on; otherwise as TaggedArguments.
  TaggedArguments::Result Read(std::string* buffer, std::string* out);
  void Finish(absl::string_view buffer, std::string* out) const;

 private:
  // Of what stands outside of strings, up to the next of its marks.
  TaggedArguments::Result ReadMark(absl::string_view* text, std::string* out);
  TaggedArguments::Result ReadAll(absl::string_view* text, std::string* out);

  bool in_string_ = false;
  bool wants_key_ = false;
  std::vector<bool> levels_;  // that are open; true: an object
};

}  // namespace bulkhead
