#include "runtime/chat/jinja/lexer.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

// Converts line ends to \n, and drops one at the end of the template.
std::string Normalized(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(Normalized(source)), rest_(source_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (!rest_.empty()) BH_RETURN_IF_ERROR(DataAndTag());
    Add(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Fail(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", why));
  }

  void Add(Token::Type type, absl::string_view text) {
    tokens_.push_back({.type = type, .text = std::string(text), .number = Value(), .line = line_});
  }

  void Skip(size_t bytes) {
    for (const char c : rest_.substr(0, bytes)) line_ += c == '\n';
    if (bytes > 0) line_starting_ = rest_[bytes - 1] == '\n';
    rest_.remove_prefix(bytes);
  }

  void SkipSpace() { Skip(rest_.size() - StripLeft(rest_).size()); }

  // The text up to the next tag, and that tag.
  absl::Status DataAndTag() {
    size_t at = 0;
    for (;; ++at) {
      at = rest_.find('{', at);
      if (at == absl::string_view::npos || at + 1 >= rest_.size()) {
        AddData(rest_);
        Skip(rest_.size());
        return absl::OkStatus();
      }
      const char second = rest_[at + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char kind = rest_[at + 1];
    const char sign = at + 2 < rest_.size() ? rest_[at + 2] : ' ';
    absl::string_view data = rest_.substr(0, at);
    if (sign == '-') {
      data = StripRight(data);
    } else if (sign != '+' && kind != '{') {
      const size_t newline = data.rfind('\n');
      const size_t begin = newline == absl::string_view::npos ? 0 : newline + 1;
      const bool line_begins = begin > 0 || line_starting_;
      if (line_begins && StripLeft(data.substr(begin)).empty()) data = data.substr(0, begin);
    }
    AddData(data);
    Skip(at);
    const size_t opening = sign == '-' || sign == '+' ? 3 : 2;
    if (kind == '#') return Comment(opening);
    if (kind == '%' && IsRaw(rest_.substr(opening))) return Raw(opening);
    Add(kind == '{' ? Token::Type::kVariableBegin : Token::Type::kBlockBegin, "");
    Skip(opening);
    return Expression(kind == '{');
  }

  void AddData(absl::string_view data) {
    if (!data.empty()) Add(Token::Type::kData, data);
  }

  absl::Status Comment(size_t opening) {
    const size_t end = rest_.find("#}", opening);
    if (end == absl::string_view::npos) return Fail("a comment {# without #}");
    EndTag(end, opening, 2);
    return absl::OkStatus();
  }

  // Moves past the end of a comment or block whose closing is at `end`, perhaps after a sign.
  void EndTag(size_t end, size_t opening, size_t closing) {
    const char sign = end > opening ? rest_[end - 1] : ' ';
    Skip(end + closing);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && absl::StartsWith(rest_, "\n")) {
      Skip(1);
    }
  }

  // Whether a block's inside is only `word`. `length`: with white space and sign.
  static bool IsWordBlock(absl::string_view inside, absl::string_view word, size_t* length) {
    absl::string_view text = StripLeft(inside);
    if (!absl::ConsumePrefix(&text, word)) return false;
    text = StripLeft(text);
    const size_t sign = absl::StartsWith(text, "-%}") || absl::StartsWith(text, "+%}") ? 1 : 0;
    if (!absl::StartsWith(text.substr(sign), "%}")) return false;
    *length = inside.size() - text.size() + sign;
    return true;
  }

  static bool IsRaw(absl::string_view inside) {
    size_t length;
    return IsWordBlock(inside, "raw", &length);
  }

  absl::Status Raw(size_t opening) {
    size_t length = 0;
    IsWordBlock(rest_.substr(opening), "raw", &length);
    const bool strip = rest_[opening + length - 1] == '-';
    Skip(opening + length + 2);
    if (strip) SkipSpace();
    for (size_t at = rest_.find("{%"); at != absl::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      const char sign = at + 2 < rest_.size() ? rest_[at + 2] : ' ';
      const size_t begin = at + (sign == '-' || sign == '+' ? 3 : 2);
      if (!IsWordBlock(rest_.substr(begin), "endraw", &length)) continue;
      absl::string_view data = rest_.substr(0, at);
      if (sign == '-') {
        data = StripRight(data);
      } else if (sign != '+') {
        const size_t newline = data.rfind('\n');
        const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
        if ((line > 0 || line_starting_) && StripLeft(data.substr(line)).empty()) {
          data = data.substr(0, line);
        }
      }
      AddData(data);
      EndTag(begin + length, begin, 2);
      return absl::OkStatus();
    }
    return Fail("{% raw %} without {% endraw %}");
  }

  // The tokens inside {{ }} or {% %}.
  absl::Status Expression(bool variable) {
    std::vector<char> open;
    while (true) {
      SkipSpace();
      if (rest_.empty()) return Fail(variable ? "{{ without }}" : "{% without %}");
      if (open.empty() && EndsExpression(variable)) return absl::OkStatus();
      BH_RETURN_IF_ERROR(OneToken(&open));
    }
  }

  bool EndsExpression(bool variable) {
    const absl::string_view closing = variable ? "}}" : "%}";
    size_t sign = absl::StartsWith(rest_, "-") || (!variable && absl::StartsWith(rest_, "+"));
    if (!absl::StartsWith(rest_.substr(sign), closing)) {
      if (sign > 0 || !absl::StartsWith(rest_, closing)) return false;
      sign = 0;
    }
    Add(variable ? Token::Type::kVariableEnd : Token::Type::kBlockEnd, "");
    if (variable) {
      Skip(sign + 2);
      if (sign > 0) SkipSpace();
    } else {
      EndTag(sign, 0, 2);
    }
    return true;
  }

  absl::Status OneToken(std::vector<char>* open) {
    const char c = rest_[0];
    if (c == '"' || c == '\'') return StringToken(c);
    if (IsDigitByte(c)) return Number();
    absl::string_view look = rest_;
    if (IsNameCharacter(TakeCodePoint(&look))) {
      while (!look.empty()) {
        absl::string_view next = look;
        if (!IsNameCharacter(TakeCodePoint(&next))) break;
        look = next;
      }
      Add(Token::Type::kName, rest_.substr(0, rest_.size() - look.size()));
      Skip(rest_.size() - look.size());
      return absl::OkStatus();
    }
    for (const absl::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!absl::StartsWith(rest_, op)) continue;
      Add(Token::Type::kOperator, op);
      Skip(2);
      return absl::OkStatus();
    }
    if (absl::string_view("+-/*%~[](){}><=.:|,;").find(c) == absl::string_view::npos) {
      return Fail(
          absl::StrCat("unexpected character '", rest_.substr(0, CodePointBytes(rest_)), "'"));
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) {
        return Fail(absl::StrCat("unexpected '", std::string(1, c), "'"));
      }
      open->pop_back();
    }
    Add(Token::Type::kOperator, rest_.substr(0, 1));
    Skip(1);
    return absl::OkStatus();
  }

  size_t Digits(size_t at) const {
    while (at < rest_.size() &&
           (IsDigitByte(rest_[at]) ||
            (rest_[at] == '_' && at + 1 < rest_.size() && IsDigitByte(rest_[at + 1])))) {
      ++at;
    }
    return at;
  }

  absl::Status Number() {
    const bool after_dot = !tokens_.empty() && tokens_.back().IsOperator(".");
    size_t end = Digits(0);
    bool real = false;
    if (!after_dot) {
      if (end + 1 < rest_.size() && rest_[end] == '.' && IsDigitByte(rest_[end + 1])) {
        end = Digits(end + 1);
        real = true;
      }
      if (end + 1 < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
        const size_t sign = rest_[end + 1] == '+' || rest_[end + 1] == '-' ? 1 : 0;
        if (end + 1 + sign < rest_.size() && IsDigitByte(rest_[end + 1 + sign])) {
          end = Digits(end + 1 + sign);
          real = true;
        }
      }
    }
    std::string digits;
    for (const char c : rest_.substr(0, end)) {
      if (c != '_') digits += c;
    }
    if (!real && end == 1 && digits == "0" && rest_.size() > 1 &&
        absl::string_view("xXoObB").find(rest_[1]) != absl::string_view::npos) {
      return Fail("numbers are decimal in templates here; write this one without its base");
    }
    if (!real && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != std::string::npos) {
      return Fail(absl::StrCat("a number with leading zeros: ", digits));
    }
    Token token{.type = real ? Token::Type::kFloat : Token::Type::kInteger,
                .text = digits,
                .number = Value(),
                .line = line_};
    if (real) {
      token.number = Value(std::strtod(digits.c_str(), nullptr));
    } else {
      uint64_t number = 0;
      if (!absl::SimpleAtoi(digits, &number)) {
        return Fail(absl::StrCat("the number ", digits.substr(0, 40), " has more than 64 bits"));
      }
      token.number = Value(Int(number));
    }
    tokens_.push_back(std::move(token));
    Skip(end);
    return absl::OkStatus();
  }

  absl::Status StringToken(char quote) {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return Fail("a string without its end");
    std::string value;
    BH_RETURN_IF_ERROR(Unescape(rest_.substr(1, end - 1), &value));
    Add(Token::Type::kString, value);
    Skip(end + 1);
    return absl::OkStatus();
  }

  absl::Status Unescape(absl::string_view text, std::string* out) const {
    while (!text.empty()) {
      const size_t plain = std::min(text.find('\\'), text.size());
      out->append(text.data(), plain);
      text.remove_prefix(plain);
      if (text.empty()) break;
      BH_RETURN_IF_ERROR(Escape(&text, out));
    }
    return absl::OkStatus();
  }

  // `text` begins with a backslash and one more character.
  absl::Status Escape(absl::string_view* text, std::string* out) const {
    static constexpr absl::string_view kNames = "abfnrtv\\'\"";
    static constexpr absl::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = (*text)[1];
    if (const size_t known = kNames.find(c); known != absl::string_view::npos) {
      *out += kValues[known];
      text->remove_prefix(2);
      return absl::OkStatus();
    }
    size_t digits = 0;
    if (c >= '0' && c <= '7') {
      while (digits < 3 && 1 + digits < text->size() && (*text)[1 + digits] >= '0' &&
             (*text)[1 + digits] <= '7') {
        ++digits;
      }
      AppendCodePoint(out, std::strtoul(std::string(text->substr(1, digits)).c_str(), nullptr, 8));
      text->remove_prefix(1 + digits);
      return absl::OkStatus();
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string hex(text->substr(2, digits));
      uint32_t code = 0;
      if (hex.size() != digits || !absl::SimpleHexAtoi(hex, &code) || code > 0x10FFFF ||
          (code >= 0xD800 && code < 0xE000)) {
        return Fail(
            absl::StrCat("a string with '\\", std::string(1, c), hex, "', which is no character"));
      }
      AppendCodePoint(out, code);
      text->remove_prefix(2 + digits);
      return absl::OkStatus();
    }
    if (c == 'N') return Fail("characters by name (\\N{...}) are not supported; write \\u");
    if (c != '\n') absl::StrAppend(out, text->substr(0, 2));
    text->remove_prefix(2);
    return absl::OkStatus();
  }

  const std::string source_;
  absl::string_view rest_;
  std::vector<Token> tokens_;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  return Lexer(source).Run();
}

}  // namespace bulkhead::jinja
