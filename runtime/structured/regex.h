// Regex: the subset that regular expressions of Python, ECMAScript and Rust share:
// | ( ) (?: ) (?P<name> ) * + ? {m} {m,} {m,n} (also lazy, which changes nothing here)
// . [ ] [^ ] \d \D \w \W \s \S \n \r \t \f \v \0 \xHH \uHHHH, and ^ $ at the begin and end of a
// whole alternative. Characters about which dialects differ are left out: `.` has no line ends,
// \d \w \s and their opposites only ASCII. UNIMPLEMENTED: look-around, back references, \b, \p,
// flags.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/structured/grammar_builder.h"

namespace bulkhead::structured {

inline constexpr int kMaxRegexDepth = 50;        // nested groups
inline constexpr int kMaxRegexRepeats = 10'000;  // maximum of {m,n}

struct RegexNode {
  enum class Kind { kCharacter, kConcat, kAlternate, kRepeat };
  Kind kind = Kind::kConcat;
  CodePoints set = {};
  std::vector<RegexNode> parts = {};  // kRepeat has one
  int min = 0, max = 0;               // max -1: any number
};

class Regex {
 public:
  // `pattern` is UTF-8. Errors name the position.
  static absl::StatusOr<Regex> Parse(absl::string_view pattern);

  // The states before `next`. `search`: the text contains a match, anchored to its begin and end
  // only by ^ and $; else the whole text is a match.
  int32_t Emit(GrammarBuilder& builder, Writing writing, bool search, int32_t next) const;

  struct Alternative {
    RegexNode node;
    bool begin = false, end = false;  // ^ and $
  };

 private:
  std::vector<Alternative> alternatives_;
};

}  // namespace bulkhead::structured
