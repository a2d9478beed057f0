#include "runtime/structured/regex_parser.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bulkhead::structured {
namespace {

// Repetitions of a part that may be empty are in as many states at once as there are counts.
constexpr int kMaxEmptyRepeats = 16;

const CodePoints& NotAscii() {
  static const CodePoints* const set = new CodePoints({{0x80, 0x10ffff}});
  return *set;
}

const CodePoints& OtherSpaces() {
  static const CodePoints* const set = new CodePoints({{0x1c, 0x1f},
                                                       {0x85, 0x85},
                                                       {0xa0, 0xa0},
                                                       {0x1680, 0x1680},
                                                       {0x2000, 0x200a},
                                                       {0x2028, 0x2029},
                                                       {0x202f, 0x202f},
                                                       {0x205f, 0x205f},
                                                       {0x3000, 0x3000},
                                                       {0xfeff, 0xfeff},
                                                       {0x180e, 0x180e}});
  return *set;
}

bool MayBeEmpty(const RegexNode& node) {
  switch (node.kind) {
    case RegexNode::Kind::kCharacter:
      return false;
    case RegexNode::Kind::kConcat:
      for (const RegexNode& part : node.parts) {
        if (!MayBeEmpty(part)) return false;
      }
      return true;
    case RegexNode::Kind::kAlternate:
      for (const RegexNode& part : node.parts) {
        if (MayBeEmpty(part)) return true;
      }
      return false;
    case RegexNode::Kind::kRepeat:
      return node.min == 0 || MayBeEmpty(node.parts[0]);
  }
  return true;
}

RegexNode CharacterNode(CodePoints set) {
  return {.kind = RegexNode::Kind::kCharacter, .set = std::move(set)};
}

}  // namespace

bool RegexParser::Take(absl::string_view token) {
  if (!absl::StartsWith(text_.substr(position_), token)) return false;
  position_ += token.size();
  return true;
}

absl::Status RegexParser::Invalid(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("regular expression, byte ", position_, ": ", what));
}

absl::Status RegexParser::Unsupported(absl::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat("regular expression, byte ", position_, ": ", what, " is not supported"));
}

absl::StatusOr<std::vector<Regex::Alternative>> RegexParser::Parse() {
  if (text_.size() > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a regular expression of ", text_.size(),
                                                   " bytes; the limit is ", kMaxGrammarBytes));
  }
  if (!IsValidUtf8(text_)) return Invalid("not UTF-8");
  std::vector<Regex::Alternative> alternatives;
  do {
    Regex::Alternative alternative;
    alternative.begin = Take("^");
    BH_ASSIGN_OR_RETURN(alternative.node, ParseSequence(0));
    alternative.end = Take("$");
    alternatives.push_back(std::move(alternative));
  } while (Take("|"));
  if (!at_end()) {
    if (text_[position_] == ')') return Invalid("')' without '('");
    return Unsupported("'$' inside an alternative");
  }
  return alternatives;
}

absl::StatusOr<RegexNode> RegexParser::ParseAlternation(int depth) {
  RegexNode node = {.kind = RegexNode::Kind::kAlternate};
  do {
    BH_ASSIGN_OR_RETURN(RegexNode part, ParseSequence(depth));
    node.parts.push_back(std::move(part));
  } while (Take("|"));
  return node;
}

absl::StatusOr<RegexNode> RegexParser::ParseSequence(int depth) {
  RegexNode node = {.kind = RegexNode::Kind::kConcat};
  while (!at_end() && text_[position_] != '|' && text_[position_] != ')') {
    if (text_[position_] == '$' && depth == 0) break;
    BH_ASSIGN_OR_RETURN(RegexNode atom, ParseAtom(depth));
    BH_ASSIGN_OR_RETURN(RegexNode part, ParseQuantifiers(std::move(atom)));
    node.parts.push_back(std::move(part));
  }
  return node;
}

absl::StatusOr<RegexNode> RegexParser::ParseAtom(int depth) {
  switch (text_[position_]) {
    case '(':
      return ParseGroup(depth + 1);
    case '[': {
      ++position_;
      BH_ASSIGN_OR_RETURN(Set set, ParseClass());
      return CharacterNode(std::move(set.sure));
    }
    case '\\': {
      ++position_;
      BH_ASSIGN_OR_RETURN(Set set, ParseEscape(false));
      return CharacterNode(std::move(set.sure));
    }
    case '.': {
      ++position_;
      const CodePoints ends({{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}});
      return CharacterNode(ends.Complement());
    }
    case '*':
    case '+':
    case '?':
      return Invalid("nothing to repeat");
    case '{':
      return Unsupported("'{' that repeats nothing (write \\{)");
    case '^':
    case '$':
      return Unsupported("'^' or '$' inside an alternative");
    default: {
      const char32_t c = NextChar(text_, &position_);
      return CharacterNode(CodePoints({{c, c}}));
    }
  }
}

absl::StatusOr<RegexNode> RegexParser::ParseGroup(int depth) {
  if (depth > kMaxRegexDepth) {
    return Invalid(absl::StrCat("more than ", kMaxRegexDepth, " groups inside each other"));
  }
  Take("(");
  if (Take("?:")) {
  } else if (Take("?=") || Take("?!") || Take("?<=") || Take("?<!")) {
    return Unsupported("look-around");
  } else if (Take("?P<") || Take("?<")) {
    const size_t end = text_.find('>', position_);
    if (end == absl::string_view::npos) return Invalid("a group's name without '>'");
    position_ = end + 1;
  } else if (Take("?")) {
    return Unsupported("a group with flags");
  }
  BH_ASSIGN_OR_RETURN(RegexNode node, ParseAlternation(depth));
  if (!Take(")")) return Invalid("'(' without ')'");
  return node;
}

absl::StatusOr<RegexNode> RegexParser::ParseQuantifiers(RegexNode atom) {
  int min = 0, max = -1;
  if (Take("*")) {
  } else if (Take("+")) {
    min = 1;
  } else if (Take("?")) {
    max = 1;
  } else if (Take("{")) {
    BH_RETURN_IF_ERROR(ParseBraces(&min, &max));
  } else {
    return atom;
  }
  Take("?");  // lazy: the same texts
  if (!at_end() && text_[position_] == '+') return Unsupported("a possessive repetition");
  if (max > kMaxEmptyRepeats && MayBeEmpty(atom)) {
    return Unsupported(absl::StrCat("a repetition of what may be empty, up to ", max,
                                    " times (more than ", kMaxEmptyRepeats, "),"));
  }
  RegexNode node = {.kind = RegexNode::Kind::kRepeat, .min = min, .max = max};
  if (min > 0 && MayBeEmpty(atom)) node.min = 0;  // the same texts, with fewer states
  node.parts.push_back(std::move(atom));
  return node;
}

absl::Status RegexParser::ParseBraces(int* min, int* max) {
  BH_ASSIGN_OR_RETURN(*min, ParseNumber());
  *max = *min;
  if (Take(",")) {
    *max = -1;
    if (!at_end() && text_[position_] != '}') {
      BH_ASSIGN_OR_RETURN(*max, ParseNumber());
      if (*max < *min) return Invalid("{m,n} with m > n");
    }
  }
  if (!Take("}")) return Invalid("'{' without '}'");
  return absl::OkStatus();
}

absl::StatusOr<int> RegexParser::ParseNumber() {
  const size_t start = position_;
  int number = 0;
  while (!at_end() && absl::ascii_isdigit(static_cast<unsigned char>(text_[position_]))) {
    number = number * 10 + (text_[position_++] - '0');
    if (number > kMaxRegexRepeats) {
      return Invalid(absl::StrCat("more than ", kMaxRegexRepeats, " repetitions"));
    }
  }
  if (position_ == start) return Invalid("a number is missing in {m,n}");
  return number;
}

absl::StatusOr<char32_t> RegexParser::ParseHex(int digits) {
  char32_t c = 0;
  for (int i = 0; i < digits; ++i, ++position_) {
    if (at_end() || !absl::ascii_isxdigit(static_cast<unsigned char>(text_[position_]))) {
      return Invalid(absl::StrCat(digits, " hexadecimal digits must follow"));
    }
    const char digit = absl::ascii_tolower(static_cast<unsigned char>(text_[position_]));
    c = c * 16 + static_cast<char32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  }
  if (c >= 0xd800 && c <= 0xdfff) return Invalid("a surrogate is no character");
  return c;
}

absl::StatusOr<RegexParser::Set> RegexParser::ParseEscape(bool in_class) {
  if (at_end()) return Invalid("nothing follows '\\'");
  const auto one = [](char32_t c) { return Set{CodePoints({{c, c}}), CodePoints({{c, c}})}; };
  const auto shorthand = [](const CodePoints& sure, const CodePoints& others, bool opposite) {
    const CodePoints maybe = sure.Union(others);
    return opposite ? Set{maybe.Complement(), sure.Complement()} : Set{sure, maybe};
  };
  const char c = text_[position_];
  switch (c) {
    case 'd':
    case 'D':
      ++position_;
      return shorthand(CodePoints({{'0', '9'}}), NotAscii(), c == 'D');
    case 'w':
    case 'W':
      ++position_;
      return shorthand(CodePoints({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}}), NotAscii(),
                       c == 'W');
    case 's':
    case 'S':
      ++position_;
      return shorthand(CodePoints({{'\t', '\r'}, {' ', ' '}}), OtherSpaces(), c == 'S');
    case 'n':
      return ++position_, one('\n');
    case 'r':
      return ++position_, one('\r');
    case 't':
      return ++position_, one('\t');
    case 'f':
      return ++position_, one('\f');
    case 'v':
      return ++position_, one('\v');
    case '0':
      ++position_;
      if (!at_end() && absl::ascii_isdigit(static_cast<unsigned char>(text_[position_]))) {
        return Unsupported("an octal escape");
      }
      return one(0);
    case 'x':
    case 'u': {
      ++position_;
      BH_ASSIGN_OR_RETURN(const char32_t code, ParseHex(c == 'x' ? 2 : 4));
      return one(code);
    }
    default:
      if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || static_cast<signed char>(c) < 0) {
        return Unsupported(absl::StrCat("'\\", text_.substr(position_, 1), "'"));
      }
      if (in_class && c == ' ') return Unsupported("'\\ '");
      ++position_;
      return one(static_cast<char32_t>(c));
  }
}

absl::StatusOr<RegexParser::Set> RegexParser::ParseClassItem() {
  if (Take("\\")) {
    if (Take("b")) return Set{CodePoints({{'\b', '\b'}}), CodePoints({{'\b', '\b'}})};
    return ParseEscape(true);
  }
  if (absl::StartsWith(text_.substr(position_), "[:")) return Unsupported("a POSIX class");
  const char32_t c = NextChar(text_, &position_);
  return Set{CodePoints({{c, c}}), CodePoints({{c, c}})};
}

absl::StatusOr<RegexParser::Set> RegexParser::ParseClass() {
  const bool opposite = Take("^");
  if (!at_end() && text_[position_] == ']') return Unsupported("']' at the start of a class");
  std::vector<CodePointRange> sure, maybe;
  while (!Take("]")) {
    if (at_end()) return Invalid("'[' without ']'");
    BH_ASSIGN_OR_RETURN(Set item, ParseClassItem());
    const auto is_one = [](const Set& set) {
      const auto& ranges = set.sure.ranges();
      return ranges.size() == 1 && ranges[0].first == ranges[0].last;
    };
    const absl::string_view rest = text_.substr(position_);
    if (rest.size() > 1 && rest[0] == '-' && rest[1] != ']') {
      ++position_;
      BH_ASSIGN_OR_RETURN(const Set last, ParseClassItem());
      if (!is_one(item) || !is_one(last)) return Invalid("a range of what is no character");
      const CodePointRange range = {item.sure.ranges()[0].first, last.sure.ranges()[0].first};
      if (range.first > range.last) return Invalid("a range that ends before it begins");
      item.sure = item.maybe = CodePoints({range});
    }
    sure.insert(sure.end(), item.sure.ranges().begin(), item.sure.ranges().end());
    maybe.insert(maybe.end(), item.maybe.ranges().begin(), item.maybe.ranges().end());
  }
  Set all = {CodePoints(std::move(sure)), CodePoints(std::move(maybe))};
  if (!opposite) return all;
  return Set{all.maybe.Complement(), all.sure.Complement()};
}

}  // namespace bulkhead::structured
