// Filters of numbers, and the filters default and attr.
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/filters.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/operators.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

absl::StatusOr<Value> Abs(Evaluator& /*evaluator*/, const Value& value,
                          const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("abs", arguments, {}, 0).status());
  if (value.is_float()) return Value(std::abs(value.real()));
  if (value.is_number()) return Value(value.integer() < 0 ? -value.integer() : value.integer());
  return TypeError(absl::StrCat("bad operand type for abs(): '", TypeName(value), "'"));
}

// Text without the underscores that Python allows between digits; empty if they are elsewhere.
std::string Digits(absl::string_view text) {
  text = StripRight(StripLeft(text));
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !absl::ascii_isalnum(text[i - 1]) ||
               !absl::ascii_isalnum(text[i + 1])) {
      return "";
    }
  }
  return out;
}

std::optional<double> RealOf(absl::string_view text) {
  const std::string digits = Digits(text);
  double real = 0;
  if (digits.find_first_of("xXpP(") != std::string::npos || !absl::SimpleAtod(digits, &real)) {
    return std::nullopt;
  }
  return real;
}

absl::StatusOr<Value> FromReal(double real) {
  if (std::isnan(real)) return ValueError("cannot convert float NaN to integer");
  if (!(std::abs(real) < 18446744073709551616.0)) {
    return absl::OutOfRangeError("a number of more than 64 bits");
  }
  return Value(Int(real));
}

absl::StatusOr<Value> ToInt(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("int", arguments, {"default", "base"}, 0));
  const Value standard = bound[0].value_or(Value::Integer(0));
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_int() || value.is_bool()) return Value(value.integer());
  if (value.is_float()) return std::isnan(value.real()) ? standard : FromReal(value.real());
  if (!value.is_string()) return standard;
  int64_t base = 10;
  if (bound[1].has_value()) {
    BH_ASSIGN_OR_RETURN(base, AsIndex(*bound[1], "int"));
    if (base < 2 || base > 36) return ValueError("int() with a base outside of 2 to 36");
  }
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(value.text().size()));
  std::string digits = Digits(value.text());
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && digits.size() > 2 && digits[0] == '0' &&
      absl::ascii_tolower(digits[1]) == prefix) {
    digits.erase(0, 2);
  }
  uint64_t magnitude = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, magnitude, static_cast<int>(base));
  if (!digits.empty() && read.ptr == end) {
    if (read.ec != std::errc()) return absl::OutOfRangeError("a number of more than 64 bits");
    return Value(negative ? -Int(magnitude) : Int(magnitude));
  }
  const std::optional<double> real = RealOf(value.text());
  if (!real.has_value() || std::isnan(*real)) return standard;
  return FromReal(*real);
}

absl::StatusOr<Value> ToFloat(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("float", arguments, {"default"}, 0));
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_number()) return Value(value.as_double());
  const Value standard = bound[0].value_or(Value(0.0));
  if (!value.is_string()) return standard;
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(value.text().size()));
  const std::optional<double> real = RealOf(value.text());
  return real.has_value() ? Value(*real) : standard;
}

// Half to even at a number of decimals, as Python's round().
double Rounded(double value, int64_t precision) {
  if (precision > 300) return value;
  if (precision < -300) return 0;
  if (precision >= 0) {
    // Correct rounding of the decimal expansion, as glibc's.
    const int size = snprintf(nullptr, 0, "%.*f", static_cast<int>(precision), value);
    std::string text(size + 1, '\0');
    snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), value);
    return std::strtod(text.c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

absl::StatusOr<Value> Round(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("round", arguments, {"precision", "method"}, 0));
  int64_t precision = 0;
  if (bound[0].has_value()) {
    BH_ASSIGN_OR_RETURN(precision, AsIndex(*bound[0], "round"));
  }
  std::string method = "common";
  if (bound[1].has_value()) {
    BH_ASSIGN_OR_RETURN(method, Str(*bound[1], evaluator.meter()));
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return ValueError("method must be common, ceil or floor");
  }
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_number()) return TypeError(absl::StrCat("round of ", TypeName(value)));
  if (method == "common") {
    if (value.is_float()) return Value(Rounded(value.real(), precision));
    if (precision >= 0) return Value(value.integer());
    return absl::UnimplementedError("round of an integer to a negative precision is not supported");
  }
  if (precision < -300 || precision > 300) return ValueError("a precision beyond 300");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

absl::StatusOr<Value> Default(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("default", arguments, {"default_value", "boolean"}, 0));
  const bool falsy = bound[1].has_value() && Truth(*bound[1]) && !Truth(value);
  if (!value.is_undefined() && !falsy) return value;
  return bound[0].has_value() ? *bound[0] : evaluator.Text("");
}

absl::StatusOr<Value> Attr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("attr", arguments, {"name"}, 1));
  BH_ASSIGN_OR_RETURN(std::string name, Str(*bound[0], evaluator.meter()));
  // Only attributes, not the items of a dict.
  if (value.is_dict() && DictMethod(name) == nullptr) {
    return Value::Missing(absl::StrCat(ObjectName(value), " has no attribute '", name, "'"),
                          evaluator.meter());
  }
  return evaluator.GetAttribute(value, name);
}

}  // namespace

void AddNumberFilters(FilterTable* table) {
  const std::pair<absl::string_view, Filter> all[] = {
      {"abs", Abs},       {"attr", Attr}, {"d", Default},  {"default", Default},
      {"float", ToFloat}, {"int", ToInt}, {"round", Round}};
  for (const auto& [name, filter] : all) table->emplace(name, filter);
}

}  // namespace bulkhead::jinja
