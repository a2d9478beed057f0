#include "runtime/chat/jinja/operators.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/markup.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

constexpr absl::string_view kSliceIndices = "slice indices must be integers or None";

absl::Status NoOperation(absl::string_view op, const Value& a, const Value& b) {
  return TypeError(absl::StrCat("unsupported operand type(s) for ", op, ": '", TypeName(a),
                                "' and '", TypeName(b), "'"));
}

bool IsListOrTuple(const Value& value) {
  return value.is_sequence() && (value.sequence().type == Sequence::Type::kList ||
                                 value.sequence().type == Sequence::Type::kTuple);
}

Int Magnitude(Int value) { return value < 0 ? -value : value; }

absl::StatusOr<Value> Product(Int a, Int b) {
  if (a != 0 && Magnitude(b) > kIntLimit / Magnitude(a)) return CheckedInt(kIntLimit);
  return CheckedInt(a * b);
}

absl::StatusOr<Value> Power(const Value& a, const Value& b) {
  if (a.is_float() || b.is_float() || b.integer() < 0) {
    if (a.as_double() == 0 && b.as_double() < 0) return ValueError("0 to a negative power");
    const double power = std::pow(a.as_double(), b.as_double());
    if (std::isnan(power) && a.as_double() < 0)
      return ValueError("complex numbers are not supported");
    return Value(power);
  }
  Value result = Value::Integer(1);
  const Int base = a.integer();
  if (Magnitude(base) <= 1) {
    return Value(b.integer() == 0 || base == 1 ? Int(1)
                 : base == 0                   ? Int(0)
                 : b.integer() % 2 == 0        ? Int(1)
                                               : Int(-1));
  }
  // At most 64 rounds before the limit.
  for (Int i = 0; i < b.integer(); ++i) {
    BH_ASSIGN_OR_RETURN(result, Product(result.integer(), base));
  }
  return result;
}

absl::StatusOr<Value> Arithmetic(absl::string_view op, const Value& a, const Value& b) {
  const bool real = a.is_float() || b.is_float();
  if (op == "**") return Power(a, b);
  if (op == "+")
    return real ? Value(a.as_double() + b.as_double()) : CheckedInt(a.integer() + b.integer());
  if (op == "-")
    return real ? Value(a.as_double() - b.as_double()) : CheckedInt(a.integer() - b.integer());
  if (op == "*")
    return real ? Value(a.as_double() * b.as_double()) : Product(a.integer(), b.integer());
  if (b.as_double() == 0) return ValueError("division by zero");
  if (op == "/") return Value(a.as_double() / b.as_double());
  if (real) {
    const double x = a.as_double(), y = b.as_double();
    double rest = std::fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
    if (op == "%") return Value(rest == 0 ? std::copysign(0.0, y) : rest);
    const double whole = (x - rest) / y;
    return Value(whole == 0 ? std::copysign(0.0, x / y) : std::floor(whole + 0.5));
  }
  const Int x = a.integer(), y = b.integer();
  Int quotient = x / y, rest = x % y;
  if (rest != 0 && (rest < 0) != (y < 0)) {
    rest += y;
    quotient -= 1;
  }
  return Value(op == "%" ? rest : quotient);
}

absl::StatusOr<Value> Repeated(const Value& value, Int count, Meter* meter) {
  if (count < 0) count = 0;
  if (value.is_string()) {
    const std::string& text = value.text();
    if (text.empty() || count == 0) return Value::Text("", meter);
    if (count > Int(INT32_MAX)) return meter->Reserve(INT64_MAX / 2);
    const int64_t times = static_cast<int64_t>(count);
    BH_RETURN_IF_ERROR(meter->Reserve(times * static_cast<int64_t>(text.size())));
    std::string out;
    out.reserve(times * text.size());
    for (int64_t i = 0; i < times; ++i) out += text;
    return Value::Text(std::move(out), meter);
  }
  const std::vector<Value>& items = value.sequence().items;
  if (items.empty() || count == 0) return Value::List({}, meter, value.sequence().type);
  if (count > Int(INT32_MAX)) return meter->Reserve(INT64_MAX / 2);
  const int64_t times = static_cast<int64_t>(count);
  BH_RETURN_IF_ERROR(meter->Reserve(times * static_cast<int64_t>(items.size() * sizeof(Value))));
  std::vector<Value> out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::List(std::move(out), meter, value.sequence().type);
}

absl::StatusOr<Value> Joined(const Value& a, const Value& b, Meter* meter) {
  if (a.is_string() && b.is_string()) {
    if (a.is_markup() || b.is_markup()) return JoinedMarkup(a, b, meter);
    BH_RETURN_IF_ERROR(meter->Reserve(a.text().size() + b.text().size()));
    return Value::Text(absl::StrCat(a.text(), b.text()), meter);
  }
  if (a.is_string()) {
    return TypeError(absl::StrCat("can only concatenate str (not \"", TypeName(b), "\") to str"));
  }
  if (!IsListOrTuple(a) || !IsListOrTuple(b) || a.sequence().type != b.sequence().type) {
    return NoOperation("+", a, b);
  }
  std::vector<Value> items = a.sequence().items;
  const std::vector<Value>& more = b.sequence().items;
  BH_RETURN_IF_ERROR(meter->Reserve((items.size() + more.size()) * sizeof(Value)));
  items.insert(items.end(), more.begin(), more.end());
  return Value::List(std::move(items), meter, a.sequence().type);
}

// Python's clamping of a slice. False if a part is not an integer.
bool SliceBound(const Value& part, int64_t length, bool backward, int64_t standard,
                int64_t* bound) {
  *bound = standard;
  if (part.is_none()) return true;
  if (!part.is_int() && !part.is_bool()) return false;
  Int at = part.integer();
  if (at < 0) at += length;
  const Int low = backward ? -1 : 0, high = backward ? length - 1 : length;
  *bound = static_cast<int64_t>(at < low ? low : at > high ? high : at);
  return true;
}

}  // namespace

absl::StatusOr<Value> CheckedInt(Int value) {
  if (Magnitude(value) < kIntLimit) return Value(value);
  return absl::OutOfRangeError("a number of more than 64 bits");
}

absl::StatusOr<Value> Binary(absl::string_view op, const Value& a, const Value& b, Meter* meter) {
  if (a.is_string() && op == "%") {
    BH_ASSIGN_OR_RETURN(std::string text, PercentFormat(a.text(), b, a.is_markup(), meter));
    return a.is_markup() ? Value::Markup(std::move(text), meter)
                         : Value::Text(std::move(text), meter);
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_number() && b.is_number()) return Arithmetic(op, a, b);
  if (op == "+") return Joined(a, b, meter);
  if (op == "*") {
    const bool left = a.is_string() || IsListOrTuple(a), right = b.is_string() || IsListOrTuple(b);
    Value repeated;
    if (left && (b.is_int() || b.is_bool())) {
      BH_ASSIGN_OR_RETURN(repeated, Repeated(a, b.integer(), meter));
      return a.is_markup() ? AsMarkup(repeated, meter) : repeated;
    }
    if (right && (a.is_int() || a.is_bool())) {
      BH_ASSIGN_OR_RETURN(repeated, Repeated(b, a.integer(), meter));
      return b.is_markup() ? AsMarkup(repeated, meter) : repeated;
    }
  }
  return NoOperation(op, a, b);
}

absl::StatusOr<bool> Relation(absl::string_view op, const Value& a, const Value& b, Meter* meter) {
  if (op == "==" || op == "!=") {
    BH_ASSIGN_OR_RETURN(bool equal, Equal(a, b, meter));
    return equal == (op == "==");
  }
  if (op == "in" || op == "not in") {
    BH_ASSIGN_OR_RETURN(bool contained, Contains(b, a, meter));
    return contained == (op == "in");
  }
  if (a.is_number() && b.is_number() && (std::isnan(a.as_double()) || std::isnan(b.as_double()))) {
    return false;
  }
  BH_ASSIGN_OR_RETURN(int order, Compare(a, b, op, meter));
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Meter* meter) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) {
      return TypeError(
          absl::StrCat("'in <string>' requires string as left operand, not ", TypeName(item)));
    }
    BH_RETURN_IF_ERROR(meter->HandleBytes(container.text().size()));
    return absl::StrContains(container.text(), item.text());
  }
  if (container.is_dict()) {
    BH_RETURN_IF_ERROR(HashKey(item).status());
    return container.dict().Find(item) != nullptr;
  }
  if (!container.is_sequence()) {
    return TypeError(absl::StrCat("argument of type '", TypeName(container), "' is not iterable"));
  }
  const Sequence& sequence = container.sequence();
  const bool generator = container.is_generator();
  for (size_t i = sequence.next; i < sequence.items.size(); ++i) {
    if (generator) sequence.next = i + 1;
    BH_ASSIGN_OR_RETURN(bool same, Equal(sequence.items[i], item, meter));
    if (same) return true;
  }
  return false;
}

absl::StatusOr<Value> Slice(const Value& value, const Value& begin, const Value& end,
                            const Value& step, Meter* meter) {
  if (value.is_undefined()) return UndefinedError(value);
  const bool sliceable = value.is_string() || IsListOrTuple(value) ||
                         (value.is_sequence() && value.sequence().type == Sequence::Type::kRange);
  if (!sliceable) {
    return TypeError(absl::StrCat("'", TypeName(value), "' object cannot be sliced"));
  }
  int64_t length = value.is_string() ? value.string().length
                                     : static_cast<int64_t>(value.sequence().items.size());
  int64_t stride = 1;
  if (!step.is_none()) {
    if (!step.is_int() && !step.is_bool()) return TypeError(kSliceIndices);
    if (step.integer() == 0) return ValueError("slice step cannot be zero");
    const Int most = Int(length) + 1;
    const Int whole = step.integer();
    stride = static_cast<int64_t>(whole > most ? most : whole < -most ? -most : whole);
  }
  const bool backward = stride < 0;
  int64_t from, to;
  if (!SliceBound(begin, length, backward, backward ? length - 1 : 0, &from) ||
      !SliceBound(end, length, backward, backward ? -1 : length, &to)) {
    return TypeError(kSliceIndices);
  }
  if (value.is_string() && stride == 1) {
    const std::string& text = value.text();
    BH_RETURN_IF_ERROR(meter->Reserve(static_cast<int64_t>(text.size())));
    if (from >= to) return Value::Text("", meter);
    const bool ascii = value.string().ascii();
    const size_t first = ascii ? from : ByteOfChar(text, from);
    const size_t last = ascii ? to : ByteOfChar(text, to);
    return Value::Text(text.substr(first, last - first), meter);
  }
  std::vector<Value> all;
  if (value.is_string()) {
    BH_ASSIGN_OR_RETURN(all, Items(value, meter));
  }
  const std::vector<Value>& items = value.is_string() ? all : value.sequence().items;
  std::vector<Value> chosen;
  for (int64_t i = from; backward ? i > to : i < to; i += stride) chosen.push_back(items[i]);
  BH_RETURN_IF_ERROR(meter->Reserve(static_cast<int64_t>(chosen.size() * sizeof(Value))));
  if (!value.is_string()) return Value::List(std::move(chosen), meter, value.sequence().type);
  std::string text;
  for (const Value& each : chosen) text += each.text();
  return Value::Text(std::move(text), meter);
}

}  // namespace bulkhead::jinja
