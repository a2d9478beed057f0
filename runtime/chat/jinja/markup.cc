#include "runtime/chat/jinja/markup.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/format.h"

namespace bulkhead::jinja {

std::string EscapedText(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

absl::StatusOr<Value> Escaped(const Value& value, Meter* meter) {
  if (value.is_markup()) return value;
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, meter));
  BH_RETURN_IF_ERROR(meter->Reserve(5 * static_cast<int64_t>(text.size())));
  return Value::Markup(EscapedText(text), meter);
}

Value AsMarkup(const Value& value, Meter* meter) {
  if (value.is_string()) {
    return value.is_markup() ? value : Value::Markup(value.text(), meter);
  }
  if (!value.is_sequence()) return value;
  std::vector<Value> items;
  for (const Value& item : value.sequence().items) {
    items.push_back(item.is_string() ? Value::Markup(item.text(), meter) : item);
  }
  return Value::List(std::move(items), meter, value.sequence().type);
}

absl::StatusOr<Value> JoinedMarkup(const Value& a, const Value& b, Meter* meter) {
  BH_ASSIGN_OR_RETURN(Value left, Escaped(a, meter));
  BH_ASSIGN_OR_RETURN(Value right, Escaped(b, meter));
  BH_RETURN_IF_ERROR(meter->Reserve(left.text().size() + right.text().size()));
  return Value::Markup(absl::StrCat(left.text(), right.text()), meter);
}

absl::StatusOr<Arguments> EscapedArguments(absl::string_view method, Arguments arguments,
                                           Meter* meter) {
  std::vector<Value>& given = arguments.positional;
  const bool has_filler =
      method == "replace" || method == "ljust" || method == "rjust" || method == "center";
  if (has_filler && given.size() > 1 && given[1].is_string()) {
    BH_ASSIGN_OR_RETURN(given[1], Escaped(given[1], meter));
  }
  if (method == "join" && given.size() == 1) {
    BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(given[0], meter));
    for (Value& item : items) {
      BH_ASSIGN_OR_RETURN(item, Escaped(item, meter));
    }
    given[0] = Value::List(std::move(items), meter);
  }
  return arguments;
}

bool KeepsMarkup(absl::string_view filter) {
  static const auto* const kNames = new absl::flat_hash_set<absl::string_view>{
      "capitalize", "center", "format",   "indent", "lower",
      "reverse",    "string", "truncate", "trim",   "upper"};
  return kNames->contains(filter);
}

}  // namespace bulkhead::jinja
