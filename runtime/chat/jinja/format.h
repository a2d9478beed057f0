// Values as text: str(), repr(), JSON, and the % operator of strings, as in Python.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

absl::StatusOr<std::string> Str(const Value& value, Meter* meter);
absl::StatusOr<std::string> Repr(const Value& value, Meter* meter);

struct JsonStyle {
  std::optional<std::string> indent;  // per level; absent: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
// json.dumps(). INVALID_ARGUMENT for values that JSON cannot express, such as undefined.
absl::StatusOr<std::string> Json(const Value& value, const JsonStyle& style, Meter* meter);

// `format` % `arguments`; `arguments` is a tuple, a dict (%(name)s) or one value. `escapes`: the
// format is markup.
absl::StatusOr<std::string> PercentFormat(const std::string& format, const Value& arguments,
                                          bool escapes, Meter* meter);

std::string IntText(Int value);
std::string FloatText(double value);

}  // namespace bulkhead::jinja
