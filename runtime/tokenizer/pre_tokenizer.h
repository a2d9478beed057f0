// PreTokenizer: the "pre_tokenizer" of a tokenizer.json: cuts a text into words. Immutable;
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/text_pieces.h"

namespace bulkhead {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual absl::Status Apply(RegexBudget& budget, TextPieces* pieces) const = 0;
  // Whether some of a text may be left out.
  virtual bool removes_text() const { return false; }
  // Whether a text consists of characters that stand for bytes behind it; `before`: and before it.
  virtual bool makes_byte_characters(bool before) const { return before; }
};

class PreTokenizer {
 public:
  // `part` may be null: then the text is one word. UNIMPLEMENTED names a step that is not
  // supported.
  static absl::StatusOr<PreTokenizer> Read(const JsonPart& part);

  // Cuts one part of a text. RESOURCE_EXHAUSTED when it grows too long or a regular expression
  // gives up.
  absl::Status PreTokenize(RegexBudget& budget, TextPieces* pieces) const;

  bool removes_text() const;           // of some texts
  bool makes_byte_characters() const;  // that stand for bytes, and nothing else

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

// How Metaspace, as pre-tokenizer and as decoder, treats the beginning of a text.
enum class PrependScheme { kAlways, kFirst, kNever };
// From "prepend_scheme" and the older "add_prefix_space".
absl::StatusOr<PrependScheme> ReadPrependScheme(const JsonPart& part);

}  // namespace bulkhead
