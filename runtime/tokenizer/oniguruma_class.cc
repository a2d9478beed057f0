// Character classes: escapes, properties, brackets.
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "runtime/tokenizer/oniguruma_properties.h"
#include "runtime/tokenizer/oniguruma_translator.h"

namespace bulkhead {
namespace {

CharacterSet SetOf(std::string inside, bool negated) {
  if (!negated) {
    // A single property needs no brackets: PCRE2 repeats it faster.
    const bool one_property =
        (absl::StartsWith(inside, "\\p{") || absl::StartsWith(inside, "\\P{")) &&
        inside.find('}') + 1 == inside.size();
    return {one_property ? inside : absl::StrCat("[", inside, "]"), inside};
  }
  return {absl::StrCat("[^", inside, "]"), std::nullopt};
}

}  // namespace

absl::StatusOr<char32_t> OnigurumaTranslator::HexChar() {
  const char kind = in_[at_ + 1];
  at_ += 2;
  size_t digits = 0;
  const bool braces = kind == 'x' && Take("{");
  const size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
  while (digits < most && at_ + digits < in_.size() && absl::ascii_isxdigit(in_[at_ + digits])) {
    ++digits;
  }
  uint32_t value = 0;
  if (digits > 0 && !absl::SimpleHexAtoi(in_.substr(at_, digits), &value)) {
    return Invalid("a number that is none");
  }
  at_ += digits;
  if (braces && (digits == 0 || !Take("}"))) return Unsupported("\\x{...} with several numbers");
  if (kind == 'u' && digits != 4) return Invalid("\\u without four digits");
  if (kind == 'x' && digits == 0) return Unsupported("\\x without digits");
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return Invalid("no character");
  // A byte above 0x7F written as \xHH is part of an encoded character.
  if (kind == 'x' && !braces && value > 0x7F) return Unsupported("\\xHH above 7F");
  return static_cast<char32_t>(value);
}

absl::StatusOr<std::optional<char32_t>> OnigurumaTranslator::EscapedChar() {
  const char kind = in_[at_ + 1];
  switch (kind) {
    case 't':
      at_ += 2;
      return std::optional<char32_t>('\t');
    case 'n':
      at_ += 2;
      return std::optional<char32_t>('\n');
    case 'r':
      at_ += 2;
      return std::optional<char32_t>('\r');
    case 'f':
      at_ += 2;
      return std::optional<char32_t>('\f');
    case 'v':
      at_ += 2;
      return std::optional<char32_t>('\v');
    case 'a':
      at_ += 2;
      return std::optional<char32_t>('\a');
    case 'e':
      at_ += 2;
      return std::optional<char32_t>(0x1B);
    case 'x':
    case 'u': {
      BH_ASSIGN_OR_RETURN(const char32_t c, HexChar());
      return std::optional<char32_t>(c);
    }
    default:
      break;
  }
  if (absl::StrContains("wWsSdDhHpP", kind)) return std::optional<char32_t>();
  if (absl::ascii_isalnum(kind)) {
    return Unsupported(absl::StrCat("\\", in_.substr(at_ + 1, 1)));
  }
  at_ += 1;
  return std::optional<char32_t>(NextChar(in_, &at_));
}

absl::StatusOr<CharacterSet> OnigurumaTranslator::EscapedSet() {
  const char kind = in_[at_ + 1];
  if (kind == 'p' || kind == 'P') return Property();
  at_ += 2;
  switch (kind) {
    case 'w':
    case 'W':
      return SetOf(kOnigurumaWord, kind == 'W');
    case 's':
      return SetOf("\\p{wspace}", false);
    case 'S':
      return SetOf("\\P{wspace}", false);
    case 'd':
      return SetOf("\\p{Nd}", false);
    case 'D':
      return SetOf("\\P{Nd}", false);
    default:
      return SetOf("0-9a-fA-F", kind == 'H');
  }
}

absl::StatusOr<CharacterSet> OnigurumaTranslator::Property() {
  bool negated = in_[at_ + 1] == 'P';
  at_ += 2;
  absl::string_view name;
  if (Take("{")) {
    if (Take("^")) negated = !negated;
    const size_t close = in_.find('}', at_);
    if (close == absl::string_view::npos) return Invalid("\\p{ without }");
    name = in_.substr(at_, close - at_);
    at_ = close + 1;
  } else {
    if (AtEnd()) return Invalid("\\p without a name");
    name = in_.substr(at_++, 1);
  }
  const std::optional<std::string> inside = OnigurumaProperty(name, negated);
  if (inside.has_value()) return SetOf(*inside, false);
  const std::optional<std::string> positive = OnigurumaProperty(name, false);
  if (positive.has_value()) return SetOf(*positive, negated);
  return Unsupported(absl::StrCat("\\p{", name, "}"));
}

absl::StatusOr<CharacterSet> OnigurumaTranslator::Brackets() {
  if (++depth_ > kMaxDepth) return Invalid("brackets too deep");
  const bool negated = Take("^");
  std::vector<std::string> operands;  // operands of &&, each a pattern
  std::string inside;                 // bracket text of the current operand
  std::vector<std::string> nested;    // its parts that cannot be inside brackets
  const auto end_operand = [&] {
    std::string whole = inside.empty() ? "" : absl::StrCat("[", inside, "]");
    for (const std::string& part : nested) {
      absl::StrAppend(&whole, whole.empty() ? "" : "|", part);
    }
    operands.push_back(nested.empty() ? whole : absl::StrCat("(?:", whole, ")"));
  };
  for (bool first = true; !Ahead("]") || first; first = false) {
    if (AtEnd()) return Invalid("unmatched [");
    if (Take("&&")) {
      end_operand();
      inside.clear();
      nested.clear();
    } else if (first && Take("]")) {
      inside += "\\]";
    } else {
      BH_RETURN_IF_ERROR(BracketItem(&inside, &nested));
    }
  }
  at_ += 1;
  --depth_;
  if (operands.empty() && nested.empty()) return SetOf(inside, negated);
  end_operand();
  std::string all;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].empty()) return Unsupported("&& with an empty side");
    const bool last = i + 1 == operands.size();
    absl::StrAppend(&all, last ? "" : "(?=", operands[i], last ? "" : ")");
  }
  return CharacterSet{
      negated ? absl::StrCat("(?:(?!", all, ")(?s:.))") : absl::StrCat("(?:", all, ")"),
      std::nullopt};
}

absl::Status OnigurumaTranslator::BracketItem(std::string* inside,
                                              std::vector<std::string>* nested) {
  const auto add = [&](const CharacterSet& set) {
    if (set.inside.has_value()) {
      absl::StrAppend(inside, *set.inside);
    } else {
      nested->push_back(set.pattern);
    }
  };
  if (Take("[:")) {
    const bool negated = Take("^");
    const size_t close = in_.find(":]", at_);
    if (close == absl::string_view::npos) return Unsupported("[: without :]");
    const absl::string_view name = in_.substr(at_, close - at_);
    at_ = close + 2;
    const std::optional<std::string> set = OnigurumaPosixBracket(name);
    if (!set.has_value()) return Unsupported(absl::StrCat("[:", name, ":]"));
    add(SetOf(*set, negated));
    return absl::OkStatus();
  }
  if (Take("[")) {
    BH_ASSIGN_OR_RETURN(const CharacterSet set, Brackets());
    add(set);
    return absl::OkStatus();
  }
  const auto one_char = [&]() -> absl::StatusOr<std::optional<char32_t>> {
    if (!Ahead("\\")) return std::optional<char32_t>(NextChar(in_, &at_));
    if (at_ + 1 >= in_.size()) return Invalid("a \\ at the end");
    if (in_[at_ + 1] == 'b') {
      at_ += 2;
      return std::optional<char32_t>('\b');
    }
    return EscapedChar();
  };
  BH_ASSIGN_OR_RETURN(const std::optional<char32_t> low, one_char());
  if (!low.has_value()) {
    const size_t begin = at_;
    BH_ASSIGN_OR_RETURN(const CharacterSet set, EscapedSet());
    // Inside brackets Oniguruma also applies case folding to these.
    for (const char* cased : {"{lu}", "{ll}", "{lt}", "{uppercase}", "{lowercase}"}) {
      if (ignores_case_ && absl::StrContains(absl::AsciiStrToLower(set.pattern), cased)) {
        return Unsupported(absl::StrCat("[", in_.substr(begin, at_ - begin), "] under (?i)"));
      }
    }
    add(set);
    return absl::OkStatus();
  }
  AppendRegexLiteral(*low, inside);
  if (!Ahead("-") || at_ + 1 >= in_.size() || in_[at_ + 1] == ']') return absl::OkStatus();
  at_ += 1;
  if (AtEnd() || Ahead("[")) return Unsupported("a range that ends in [");
  BH_ASSIGN_OR_RETURN(const std::optional<char32_t> high, one_char());
  if (!high.has_value() || *high < *low) return Invalid("a range that is none");
  *inside += '-';
  AppendRegexLiteral(*high, inside);
  return absl::OkStatus();
}

}  // namespace bulkhead
