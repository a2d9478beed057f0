// Pattern: {"String": ...} or {"Regex": ...} of a Split or Replace. Immutable; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {

class Pattern {
 public:
  static absl::StatusOr<Pattern> Read(const JsonPart& part);
  // Matches exactly `literal`. REQUIRES: not empty.
  static Pattern Literal(std::string literal);

  // Appends spans that cover `text`.
  absl::Status FindAll(absl::string_view text, RegexBudget& budget, std::vector<Span>* spans) const;
  // Not empty if the pattern is a plain string.
  const std::string& literal() const { return literal_; }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;  // if there is no literal
};

}  // namespace bulkhead
