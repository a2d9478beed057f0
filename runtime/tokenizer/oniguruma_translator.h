// The recursive descent parser of TranslateOniguruma; only for oniguruma*.cc.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace bulkhead {

// A set of characters: as a standalone pattern and, if possible, as the inside of brackets.
struct CharacterSet {
  std::string pattern;
  std::optional<std::string> inside;
};

// Appends `c` as a pattern that matches exactly it, inside or outside brackets.
void AppendRegexLiteral(char32_t c, std::string* out);

class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(absl::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    BH_RETURN_IF_ERROR(Alternatives());
    if (!AtEnd()) return Invalid("unmatched )");
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return at_ >= in_.size(); }
  bool Ahead(absl::string_view what) const { return absl::StartsWith(in_.substr(at_), what); }
  bool Take(absl::string_view what) {
    if (!Ahead(what)) return false;
    at_ += what.size();
    return true;
  }
  absl::Status Invalid(absl::string_view why) const;
  absl::Status Unsupported(absl::string_view what) const;

  absl::Status Alternatives();                   // up to the end or an unmatched )
  absl::Status Atom();                           // anything a quantifier can follow
  absl::Status Quantifiers(size_t atom_begin);   // the quantifiers after it
  bool Interval(std::string* out, bool* fixed);  // {n,m}; false if it is literal text
  absl::Status Group();
  absl::Status Options();
  absl::Status Escape();
  absl::StatusOr<std::optional<char32_t>> EscapedChar();  // \n, \x41 ...; nothing for a class
  absl::StatusOr<char32_t> HexChar();
  absl::StatusOr<CharacterSet> EscapedSet();  // \w, \p{..} ...
  absl::StatusOr<CharacterSet> Property();
  absl::StatusOr<CharacterSet> Brackets();
  absl::Status BracketItem(std::string* inside, std::vector<std::string>* nested);

  absl::string_view in_;
  size_t at_ = 0;
  std::string out_;
  static constexpr int kMaxDepth = 64;
  int depth_ = 0;
  bool ignores_case_ = false;
};

}  // namespace bulkhead
