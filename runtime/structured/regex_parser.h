// The parser of regex.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/structured/regex.h"

namespace bulkhead::structured {

class RegexParser {
 public:
  explicit RegexParser(absl::string_view pattern) : text_(pattern) {}
  absl::StatusOr<std::vector<Regex::Alternative>> Parse();

 private:
  // Characters that are in the set in every dialect, and in some.
  struct Set {
    CodePoints sure, maybe;
  };

  bool at_end() const { return position_ >= text_.size(); }
  bool Take(absl::string_view token);
  absl::Status Invalid(absl::string_view what) const;
  absl::Status Unsupported(absl::string_view what) const;

  absl::StatusOr<RegexNode> ParseAlternation(int depth);
  absl::StatusOr<RegexNode> ParseSequence(int depth);
  absl::StatusOr<RegexNode> ParseAtom(int depth);
  absl::StatusOr<RegexNode> ParseGroup(int depth);
  absl::StatusOr<RegexNode> ParseQuantifiers(RegexNode atom);
  absl::Status ParseBraces(int* min, int* max);
  absl::StatusOr<int> ParseNumber();
  absl::StatusOr<Set> ParseEscape(bool in_class);
  absl::StatusOr<Set> ParseClass();
  absl::StatusOr<Set> ParseClassItem();
  absl::StatusOr<char32_t> ParseHex(int digits);

  const absl::string_view text_;
  size_t position_ = 0;
};

}  // namespace bulkhead::structured
