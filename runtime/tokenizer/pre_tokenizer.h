// PreTokenizer: the "pre_tokenizer" of a tokenizer.json: splits a text into words. Immutable;
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/text_pieces.h"

namespace bulkhead {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual absl::Status Apply(EncodeBudget& budget, TextPieces* pieces) const = 0;
  // Whether parts of a text may be removed.
  virtual bool removes_text() const { return false; }
  // Whether the result consists of byte-level characters; `before`: whether the input does.
  virtual bool makes_byte_characters(bool before) const { return before; }
};

class PreTokenizer {
 public:
  // `part` may be null: then the text is one word. UNIMPLEMENTED names an unsupported step.
  static absl::StatusOr<PreTokenizer> Read(const JsonPart& part);

  // Splits one part of a text. RESOURCE_EXHAUSTED when the result grows too long or a regular
  // expression exceeds its limits.
  absl::Status PreTokenize(EncodeBudget& budget, TextPieces* pieces) const;

  bool removes_text() const;           // from some texts
  bool makes_byte_characters() const;  // the result is byte-level characters only

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

// How Metaspace, both as pre-tokenizer and as decoder, treats the beginning of a text.
enum class PrependScheme { kAlways, kFirst, kNever };
// From "prepend_scheme" and the older "add_prefix_space".
absl::StatusOr<PrependScheme> ReadPrependScheme(const JsonPart& part);

}  // namespace bulkhead
