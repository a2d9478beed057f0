// Filters that return text.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/filters.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/markup.h"
#include "runtime/chat/jinja/text_operations.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

// upper(), lower() and the like of str(value).
template <std::string (*kMapping)(absl::string_view)>
absl::StatusOr<Value> Mapped(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("filter", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(3 * static_cast<int64_t>(text.size())));
  return evaluator.Text(kMapping(text));
}

// Jinja2's own rule: words begin after white space, a hyphen or an opening bracket.
std::string TitleWords(absl::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    absl::string_view rest = word;
    const size_t first = rest.empty() ? 0 : CodePointBytes(rest);
    absl::StrAppend(&out, ToUpper(rest.substr(0, first)), ToLower(rest.substr(first)));
    word.clear();
  };
  while (!text.empty()) {
    const char32_t code = TakeCodePoint(&text);
    if (IsSpace(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<') {
      flush();
      AppendCodePoint(&out, code);
    } else {
      AppendCodePoint(&word, code);
    }
  }
  flush();
  return out;
}

std::string Identity(absl::string_view text) { return std::string(text); }

template <bool kForced>
absl::StatusOr<Value> EscapeFilter(Evaluator& evaluator, const Value& value,
                                   const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("escape", arguments, {}, 0).status());
  const bool again = kForced && value.is_markup();
  return Escaped(again ? evaluator.Text(value.text()) : value, evaluator.meter());
}

absl::StatusOr<Value> Safe(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("safe", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  return Value::Markup(std::move(text), evaluator.meter());
}

absl::StatusOr<Value> Trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("trim", arguments, {"chars"}, 0));
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return evaluator.Text(std::string(StripRight(StripLeft(text))));
  }
  BH_ASSIGN_OR_RETURN(std::string set, AsText(*bound[0], "trim"));
  BH_RETURN_IF_ERROR(evaluator.meter()->Step(text.size() * set.size() / 64));
  const absl::string_view characters = set;
  return evaluator.Text(std::string(StripRight(StripLeft(text, &characters), &characters)));
}

absl::StatusOr<Value> ReplaceFilter(Evaluator& evaluator, const Value& value,
                                    const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  BH_ASSIGN_OR_RETURN(std::string from, Str(*bound[0], evaluator.meter()));
  BH_ASSIGN_OR_RETURN(std::string to, Str(*bound[1], evaluator.meter()));
  int64_t most = -1;
  if (bound[2].has_value() && !bound[2]->is_none()) {
    BH_ASSIGN_OR_RETURN(most, AsIndex(*bound[2], "replace"));
  }
  BH_ASSIGN_OR_RETURN(std::string out, Replace(text, from, to, most, evaluator.meter()));
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("join", arguments, {"d", "attribute"}, 0));
  std::string separator;
  if (bound[0].has_value()) {
    BH_ASSIGN_OR_RETURN(separator, Str(*bound[0], evaluator.meter()));
  }
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound[1].has_value() && !bound[1]->is_none()) {
      BH_ASSIGN_OR_RETURN(item, AtPath(evaluator, item, *bound[1]));
    }
    BH_ASSIGN_OR_RETURN(std::string text, Str(item, evaluator.meter()));
    absl::StrAppend(&out, i > 0 ? separator : "", text);
    if (!evaluator.meter()->Fits(out.size())) return evaluator.meter()->Reserve(out.size());
  }
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("indent", arguments, {"width", "first", "blank"}, 0));
  std::string indent(4, ' ');
  if (bound[0].has_value() && bound[0]->is_string()) {
    indent = bound[0]->text();
  } else if (bound[0].has_value()) {
    BH_ASSIGN_OR_RETURN(int64_t width, AsIndex(*bound[0], "indent"));
    BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(std::max<int64_t>(width, 0)));
    indent = std::string(std::max<int64_t>(width, 0), ' ');
  }
  const bool first = bound[1].has_value() && Truth(*bound[1]);
  const bool blank = bound[2].has_value() && Truth(*bound[2]);
  if (!value.is_string()) {
    if (value.is_undefined()) return UndefinedError(value);
    return TypeError(absl::StrCat("indent needs a string, not ", TypeName(value)));
  }
  // Jinja2 adds a line end, so that one at the end of the text stays.
  BH_ASSIGN_OR_RETURN(const Parts lines,
                      SplitLines(absl::StrCat(value.text(), "\n"), false, evaluator.meter()));
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(value.text().size()));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : (blank || !lines[i].empty())) out += indent;
    out += lines[i];
    if (!evaluator.meter()->Fits(out.size())) return evaluator.meter()->Reserve(out.size());
  }
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("center", arguments, {"width"}, 0));
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  Arguments width;
  width.positional.push_back(bound[0].value_or(Value::Integer(80)));
  return StringMethod("center")(evaluator, evaluator.Text(std::move(text)), width);
}

absl::StatusOr<Value> Truncate(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound,
                      Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0));
  int64_t length = 255, leeway = 5;
  std::string end = "...";
  if (bound[0].has_value()) {
    BH_ASSIGN_OR_RETURN(length, AsIndex(*bound[0], "truncate"));
  }
  if (bound[2].has_value()) {
    BH_ASSIGN_OR_RETURN(end, AsText(*bound[2], "truncate"));
  }
  if (bound[3].has_value() && !bound[3]->is_none()) {
    BH_ASSIGN_OR_RETURN(leeway, AsIndex(*bound[3], "truncate"));
  }
  const int64_t end_length = CountChars(end);
  if (length < end_length) return ValueError(absl::StrCat("expected length >= ", end_length));
  if (leeway < 0) return ValueError("expected leeway >= 0");
  BH_ASSIGN_OR_RETURN(int64_t actual, Length(value));
  if (actual - length <= leeway) return value;
  if (!value.is_string()) return TypeError("truncate needs a string");
  std::string cut = value.text().substr(0, ByteOfChar(value.text(), length - end_length));
  if (!bound[1].has_value() || !Truth(*bound[1])) {
    const size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return evaluator.Text(absl::StrCat(cut, value.is_markup() ? EscapedText(end) : end));
}

absl::StatusOr<Value> Format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return TypeError("can't handle positional and keyword arguments at the same time");
  }
  BH_ASSIGN_OR_RETURN(std::string format, Str(value, evaluator.meter()));
  Value values = evaluator.List(arguments.positional, Sequence::Type::kTuple);
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>(evaluator.meter());
    for (const auto& [name, each] : arguments.named) {
      BH_RETURN_IF_ERROR(dict->Set(evaluator.Text(name), each));
    }
    values = Value(std::shared_ptr<const Dict>(std::move(dict)));
  }
  BH_ASSIGN_OR_RETURN(std::string text,
                      PercentFormat(format, values, value.is_markup(), evaluator.meter()));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> ToJson(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("tojson", arguments,
                                       {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = bound[0].has_value() && Truth(*bound[0]);
  style.sort_keys = bound[3].has_value() && Truth(*bound[3]);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text();
    } else {
      BH_ASSIGN_OR_RETURN(int64_t width, AsIndex(*bound[1], "tojson"));
      constexpr int64_t kMaxIndent = 100;
      if (width > kMaxIndent) {
        return ValueError(absl::StrCat("tojson with an indent of more than ", kMaxIndent));
      }
      style.indent = std::string(std::max<int64_t>(width, 0), ' ');
    }
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    BH_ASSIGN_OR_RETURN(std::vector<Value> pair, Items(*bound[2], evaluator.meter()));
    if (pair.size() != 2) return ValueError("separators of tojson are two strings");
    BH_ASSIGN_OR_RETURN(style.item_separator, AsText(pair[0], "tojson"));
    BH_ASSIGN_OR_RETURN(style.key_separator, AsText(pair[1], "tojson"));
  }
  BH_ASSIGN_OR_RETURN(std::string text, Json(value, style, evaluator.meter()));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> WordCount(Evaluator& evaluator, const Value& value,
                                const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("wordcount", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, evaluator.meter()));
  int64_t words = 0;
  bool inside = false;
  for (absl::string_view rest = text; !rest.empty();) {
    const char32_t code = TakeCodePoint(&rest);
    const bool word = IsAlpha(code) || IsNumeric(code) || code == '_';
    words += word && !inside;
    inside = word;
  }
  return Value::Integer(words);
}

}  // namespace

void AddTextFilters(FilterTable* table) {
  const std::pair<absl::string_view, Filter> all[] = {{"capitalize", Mapped<Capitalize>},
                                                      {"center", Center},
                                                      {"e", EscapeFilter<false>},
                                                      {"escape", EscapeFilter<false>},
                                                      {"forceescape", EscapeFilter<true>},
                                                      {"format", Format},
                                                      {"indent", Indent},
                                                      {"join", Join},
                                                      {"lower", Mapped<ToLower>},
                                                      {"replace", ReplaceFilter},
                                                      {"safe", Safe},
                                                      {"string", Mapped<Identity>},
                                                      {"title", Mapped<TitleWords>},
                                                      {"tojson", ToJson},
                                                      {"trim", Trim},
                                                      {"truncate", Truncate},
                                                      {"upper", Mapped<ToUpper>},
                                                      {"wordcount", WordCount}};
  for (const auto& [name, filter] : all) table->emplace(name, filter);
}

}  // namespace bulkhead::jinja
