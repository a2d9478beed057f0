// Decoder: the "decoder" of a tokenizer.json: turns tokens back into text. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

class Decoder {
 public:
  using Tokens = std::vector<std::string>;

  // `part` may be null: then tokens are joined with spaces. UNIMPLEMENTED names a step that is not
  // supported.
  static absl::StatusOr<Decoder> Read(const JsonPart& part);

  // The text of `tokens`, the first of which begins it, or else follows some token of plain text.
  std::string Decode(Tokens tokens, bool first = true) const;

  // Whether tokens may be decoded in parts. A part ends with a token after which no later one
  // changes its text: one that is not EndsOpen(), and whose text so far does not end in U+FFFD,
  // which may be an unfinished character. Parts that decode to nothing belong to the next one as
  // long as they are first. Else the tokens have to be decoded all together.
  bool decodes_in_parts() const { return in_parts_; }
  // Whether `token` is one of a run of byte tokens: it is the run as a whole that is UTF-8 or not.
  bool EndsOpen(const std::string& token) const;

 private:
  using Step = std::function<void(Tokens&)>;

  absl::Status ReadStep(const JsonPart& part);
  absl::Status ReadReplace(const JsonPart& part);
  void AddForEach(std::function<void(std::string&)> change);

  std::vector<Step> steps_;
  size_t bytes_step_ = SIZE_MAX;  // index of ByteFallback
  bool joined_ = false;           // by the steps so far, to one token
  bool in_parts_ = true;
};

}  // namespace bulkhead
