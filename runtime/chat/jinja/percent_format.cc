// The % operator of strings.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/markup.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

// One conversion of a % format.
struct Conversion {
  std::string flags;
  int width = 0;
  int precision = -1;
  char type = 's';
  bool escapes = false;
};

constexpr int kMaxFormatWidth = 1000;

absl::StatusOr<std::string> Converted(const Conversion& how, const Value& value, Meter* meter) {
  std::string body;
  if (how.type == 's' || how.type == 'r') {
    BH_ASSIGN_OR_RETURN(body, how.type == 's' ? Str(value, meter) : Repr(value, meter));
    if (how.escapes && (how.type == 'r' || !value.is_markup())) body = EscapedText(body);
    if (how.precision >= 0) body.resize(ByteOfChar(body, how.precision));
    const int64_t pad = how.width - CountChars(body);
    if (pad <= 0) return body;
    return how.flags.find('-') != std::string::npos ? body + std::string(pad, ' ')
                                                    : std::string(pad, ' ') + body;
  }
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_number()) {
    return TypeError(absl::StrCat("%", std::string(1, how.type),
                                  " format: a number is required, not ", TypeName(value)));
  }
  char buffer[2 * kMaxFormatWidth + 400];
  const int precision = how.precision;
  if (absl::string_view("dixXo").find(how.type) != absl::string_view::npos) {
    const double real = value.as_double();
    if (value.is_float() && !(std::abs(real) < 9e18))
      return ValueError("%d of a number beyond 64 bits");
    const Int whole = value.is_float() ? Int(real) : value.integer();
    if (whole > Int(INT64_MAX) || whole < Int(INT64_MIN))
      return ValueError("%d of a number beyond 64 bits");
    if (how.type != 'd' && how.type != 'i' && whole < 0)
      return ValueError("%x of a number below 0");
    const char type = how.type == 'i' ? 'd' : how.type;
    const std::string format = absl::StrCat("%", how.flags, "*.*ll", std::string(1, type));
    snprintf(buffer, sizeof(buffer), format.c_str(), how.width, precision,
             static_cast<long long>(static_cast<int64_t>(whole)));
    return std::string(buffer);
  }
  const std::string format = absl::StrCat("%", how.flags, "*.*", std::string(1, how.type));
  const int written = snprintf(buffer, sizeof(buffer), format.c_str(), how.width,
                               precision < 0 ? 6 : precision, value.as_double());
  if (written < 0 || written >= static_cast<int>(sizeof(buffer)))
    return ValueError("number too long");
  return std::string(buffer);
}

// Digits at the front of `text`.
absl::StatusOr<int> TakeNumber(absl::string_view* text) {
  int number = 0;
  while (!text->empty() && (*text)[0] >= '0' && (*text)[0] <= '9') {
    number = number * 10 + ((*text)[0] - '0');
    if (number > kMaxFormatWidth) {
      return ValueError(absl::StrCat("a width or precision above ", kMaxFormatWidth, " in %"));
    }
    text->remove_prefix(1);
  }
  return number;
}

}  // namespace

absl::StatusOr<std::string> PercentFormat(const std::string& format, const Value& arguments,
                                          bool escapes, Meter* meter) {
  const bool tuple = arguments.is_sequence() && arguments.sequence().type == Sequence::Type::kTuple;
  const std::vector<Value> values =
      tuple ? arguments.sequence().items : std::vector<Value>{arguments};
  size_t used = 0;
  std::string out;
  absl::string_view rest = format;
  while (true) {
    const size_t plain = std::min(rest.find('%'), rest.size());
    absl::StrAppend(&out, rest.substr(0, plain));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    if (!rest.empty() && rest[0] == '%') {
      out += '%';
      rest.remove_prefix(1);
      continue;
    }
    const Value* value = nullptr;
    if (!rest.empty() && rest[0] == '(') {
      const size_t close = rest.find(')');
      if (close == absl::string_view::npos) return ValueError("incomplete format key");
      if (!arguments.is_dict()) return TypeError("format requires a mapping");
      value = arguments.dict().Find(rest.substr(1, close - 1));
      if (value == nullptr)
        return ValueError(absl::StrCat("no key '", rest.substr(1, close - 1), "'"));
      rest.remove_prefix(close + 1);
    }
    Conversion how;
    how.escapes = escapes;
    while (!rest.empty() && absl::string_view("-+ #0").find(rest[0]) != absl::string_view::npos) {
      if (how.flags.find(rest[0]) == std::string::npos) how.flags += rest[0];
      rest.remove_prefix(1);
    }
    BH_ASSIGN_OR_RETURN(how.width, TakeNumber(&rest));
    if (!rest.empty() && rest[0] == '.') {
      rest.remove_prefix(1);
      BH_ASSIGN_OR_RETURN(how.precision, TakeNumber(&rest));
    }
    if (rest.empty()) return ValueError("incomplete format");
    how.type = rest[0];
    rest.remove_prefix(1);
    if (absl::string_view("srdixXofFeEgG").find(how.type) == absl::string_view::npos) {
      return ValueError(
          absl::StrCat("unsupported format character '", std::string(1, how.type), "'"));
    }
    if (value == nullptr) {
      if (used == values.size()) return TypeError("not enough arguments for format string");
      value = &values[used++];
    }
    BH_ASSIGN_OR_RETURN(std::string text, Converted(how, *value, meter));
    out += text;
    BH_RETURN_IF_ERROR(meter->Step());
    if (!meter->Fits(static_cast<int64_t>(out.size()))) return meter->Reserve(out.size());
  }
  // A value with items, except a tuple or a string, may be used only for names.
  const bool mapping = arguments.is_dict() || arguments.is_undefined() ||
                       (arguments.is_sequence() && !tuple && !arguments.is_generator());
  if (used < values.size() && !mapping) {
    return TypeError("not all arguments converted during string formatting");
  }
  return out;
}

}  // namespace bulkhead::jinja
