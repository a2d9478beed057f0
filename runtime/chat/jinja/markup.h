// Markup: the type returned by escape and safe. Text joined with markup is escaped, and the methods
// of markup return markup. In a template without autoescape it prints like any text.
// Reference: https://markupsafe.palletsprojects.com/
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

// `value` as markup: markup unchanged, else str(value) with HTML characters escaped.
absl::StatusOr<Value> Escaped(const Value& value, Meter* meter);
std::string EscapedText(absl::string_view text);
// Texts, and texts in lists and tuples, as markup; other values unchanged.
Value AsMarkup(const Value& value, Meter* meter);
// a + b if either is markup.
absl::StatusOr<Value> JoinedMarkup(const Value& a, const Value& b, Meter* meter);
// The arguments of a method of markup, escaped if its result will contain them.
absl::StatusOr<Arguments> EscapedArguments(absl::string_view method, Arguments arguments,
                                           Meter* meter);
// Whether the filter of that name returns markup for markup.
bool KeepsMarkup(absl::string_view filter);

}  // namespace bulkhead::jinja
