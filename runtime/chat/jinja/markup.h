// Markup: the type of what escape and safe return. Text that is joined with markup is escaped, and
// what its methods return is markup. In a template without autoescape it prints as any text.
// Reference: https://markupsafe.palletsprojects.com/
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

// `value` as markup: markup as it is, else str(value), its HTML characters escaped.
absl::StatusOr<Value> Escaped(const Value& value, Meter* meter);
std::string EscapedText(absl::string_view text);
// Texts, and texts in lists and tuples, as markup; other values as they are.
Value AsMarkup(const Value& value, Meter* meter);
// a + b where either is markup.
absl::StatusOr<Value> JoinedMarkup(const Value& a, const Value& b, Meter* meter);
// The arguments of a method of markup, escaped where its result will hold them.
absl::StatusOr<Arguments> EscapedArguments(absl::string_view method, Arguments arguments,
                                           Meter* meter);
// Whether the filter of that name returns markup for markup.
bool KeepsMarkup(absl::string_view filter);

}  // namespace bulkhead::jinja
