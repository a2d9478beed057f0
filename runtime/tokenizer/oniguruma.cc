#include "runtime/tokenizer/oniguruma.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/utf8.h"
#include "runtime/tokenizer/oniguruma_properties.h"
#include "runtime/tokenizer/oniguruma_translator.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;

}  // namespace

void AppendRegexLiteral(char32_t c, std::string* out) {
  if (c < 0x20 || c == 0x7F) {
    absl::StrAppendFormat(out, "\\x{%x}", static_cast<uint32_t>(c));
    return;
  }
  if (c < 0x80 && !absl::ascii_isalnum(static_cast<unsigned char>(c))) out->push_back('\\');
  AppendUtf8(c, out);
}

absl::Status OnigurumaTranslator::Invalid(absl::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrCat("regular expression \"", in_, "\": ", why, " at byte ", at_));
}

absl::Status OnigurumaTranslator::Unsupported(absl::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat("regular expression \"", in_, "\": ", what, " is not supported"));
}

absl::Status OnigurumaTranslator::Alternatives() {
  if (++depth_ > kMaxDepth) return Invalid("groups too deep");
  while (!AtEnd() && !Ahead(")")) {
    if (Take("|")) {
      out_ += '|';
      continue;
    }
    const size_t begin = out_.size();
    BH_RETURN_IF_ERROR(Atom());
    BH_RETURN_IF_ERROR(Quantifiers(begin));
  }
  --depth_;
  return absl::OkStatus();
}

absl::Status OnigurumaTranslator::Atom() {
  if (Ahead("*") || Ahead("+") || Ahead("?")) return Invalid("nothing to repeat");
  if (Take("(")) return Group();
  if (Ahead("\\")) return Escape();
  if (Take("[")) {
    BH_ASSIGN_OR_RETURN(const CharacterSet set, Brackets());
    out_ += set.pattern;
    return absl::OkStatus();
  }
  if (Ahead(".") || Ahead("^") || Ahead("$")) {
    out_ += in_[at_++];
    return absl::OkStatus();
  }
  AppendRegexLiteral(NextChar(in_, &at_), &out_);
  return absl::OkStatus();
}

// + after {n,m} repeats the repetition, and so does ? after {n}; only after * + ? do they mean
// possessive and lazy.
absl::Status OnigurumaTranslator::Quantifiers(size_t atom_begin) {
  const auto wrap = [&] {
    out_.insert(atom_begin, "(?:");
    out_ += ')';
  };
  for (bool first = true; !AtEnd(); first = false) {
    std::string interval;
    bool fixed = false;
    const bool is_interval = Ahead("{") && Interval(&interval, &fixed);
    if (!is_interval && !Ahead("*") && !Ahead("+") && !Ahead("?")) break;
    if (out_.size() == atom_begin) return Invalid("nothing to repeat");
    if (!first) wrap();
    if (is_interval) {
      out_ += interval;
      if (!fixed && Take("?")) out_ += '?';
      continue;
    }
    out_ += in_[at_++];
    if (Ahead("?") || Ahead("+")) out_ += in_[at_++];
  }
  return absl::OkStatus();
}

bool OnigurumaTranslator::Interval(std::string* out, bool* fixed) {
  const size_t close = in_.find('}', at_);
  if (close == absl::string_view::npos) return false;
  const absl::string_view body = in_.substr(at_ + 1, close - at_ - 1);
  for (const char c : body) {
    if (c != ',' && !absl::ascii_isdigit(c)) return false;
  }
  const size_t comma = body.find(',');
  *fixed = comma == absl::string_view::npos;
  const absl::string_view low_text = body.substr(0, comma);
  const absl::string_view high_text = *fixed ? low_text : body.substr(comma + 1);
  uint32_t low = 0, high = 0;
  if (low_text.empty() && high_text.empty()) return false;
  if (!low_text.empty() && !absl::SimpleAtoi(low_text, &low)) return false;
  if (!high_text.empty() && !absl::SimpleAtoi(high_text, &high)) return false;
  at_ = close + 1;
  if (high_text.empty()) {
    *out = absl::StrCat("{", low, ",}");
  } else if (low > high) {  // reversed bounds mean possessive
    *out = absl::StrCat("{", high, ",", low, "}+");
    *fixed = true;
  } else {
    *out = *fixed ? absl::StrCat("{", low, "}") : absl::StrCat("{", low, ",", high, "}");
  }
  return true;
}

absl::Status OnigurumaTranslator::Group() {
  if (Ahead("*")) return Unsupported("(*...)");
  if (Take("?#")) {
    const size_t close = in_.find(')', at_);
    if (close == absl::string_view::npos) return Invalid("unmatched (");
    at_ = close + 1;
    return absl::OkStatus();
  }
  if (!Ahead("?")) {
    out_ += '(';
  } else {
    bool opened = false;
    for (const absl::string_view plain : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (!opened && Take(plain)) {
        absl::StrAppend(&out_, "(", plain);
        opened = true;
      }
    }
    if (!opened && Take("?<")) {  // named; references to the name are refused
      const size_t close = in_.find('>', at_);
      if (close == absl::string_view::npos) return Invalid("(?< without >");
      at_ = close + 1;
      out_ += "(?:";
      opened = true;
    }
    if (!opened) return Options();
  }
  BH_RETURN_IF_ERROR(Alternatives());
  if (!Take(")")) return Invalid("unmatched (");
  out_ += ')';
  return absl::OkStatus();
}

// (?im-im:...) and (?im-im), which extends to the end of the enclosing group, across alternatives.
absl::Status OnigurumaTranslator::Options() {
  const size_t begin = at_;
  const bool ignored_case = ignores_case_;
  bool off = false;
  at_ += 1;
  out_ += "(?";
  while (!AtEnd() && !Ahead(":") && !Ahead(")")) {
    const char option = in_[at_++];
    if (option == 'i') {
      ignores_case_ = !off;
      out_ += option;
    } else if (option == '-') {
      off = true;
      out_ += option;
    } else if (option == 'm') {
      out_ += 's';
    } else {
      return Unsupported(absl::StrCat("(", in_.substr(begin, at_ - begin), "...)"));
    }
  }
  const bool isolated = Ahead(")");
  if (AtEnd()) return Invalid("unmatched (");
  at_ += 1;
  out_ += ':';
  BH_RETURN_IF_ERROR(Alternatives());
  if (!isolated && !Take(")")) return Invalid("unmatched (");
  out_ += ')';
  ignores_case_ = ignored_case;
  return absl::OkStatus();
}

absl::Status OnigurumaTranslator::Escape() {
  if (at_ + 1 >= in_.size()) return Invalid("a \\ at the end");
  const absl::string_view word = kOnigurumaWordAlone;
  switch (in_[at_ + 1]) {
    case 'b':
      absl::StrAppend(&out_, "(?:(?<=[", word, "])(?![", word, "])|(?<![", word, "])(?=[", word,
                      "]))");
      break;
    case 'B':
      absl::StrAppend(&out_, "(?:(?<=[", word, "])(?=[", word, "])|(?<![", word, "])(?![", word,
                      "]))");
      break;
    case 'A':
    case 'z':
    case 'Z':
    case 'R':
    case 'K':
      absl::StrAppend(&out_, in_.substr(at_, 2));
      break;
    case 'N':
      out_ += "(?-s:.)";
      break;
    case 'O':
      out_ += "(?s:.)";
      break;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
      if (at_ + 2 < in_.size() && absl::ascii_isdigit(in_[at_ + 2])) {
        return Unsupported("a number of several digits after \\");
      }
      absl::StrAppend(&out_, "\\g{", in_.substr(at_ + 1, 1), "}");
      break;
    default: {
      BH_ASSIGN_OR_RETURN(const std::optional<char32_t> c, EscapedChar());
      if (c.has_value()) {
        AppendRegexLiteral(*c, &out_);
      } else {
        BH_ASSIGN_OR_RETURN(const CharacterSet set, EscapedSet());
        out_ += absl::StrReplaceAll(set.pattern, {{kOnigurumaWord, kOnigurumaWordAlone}});
      }
      return absl::OkStatus();
    }
  }
  at_ += 2;
  return absl::OkStatus();
}

absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression of ", pattern.size(),
                                                   " bytes, more than ", kMaxPatternBytes));
  }
  return OnigurumaTranslator(pattern).Run();
}

}  // namespace bulkhead
