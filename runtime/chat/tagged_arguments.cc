#include "runtime/chat/tagged_arguments.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/chat/call_json.h"
#include "runtime/chat/output_delta.h"
#include "runtime/chat/python_arguments.h"

namespace bulkhead {
namespace {

using absl::string_view;
using nlohmann::ordered_json;

// Maximum bytes of a key with its tags, and of white space between tags.
constexpr size_t kMaxKeyBytes = 512;

// Null if there is none.
const ordered_json* MemberOf(const ordered_json* value, const char* name) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const auto found = value->find(name);
  return found == value->end() ? nullptr : &*found;
}

size_t SpaceOf(string_view text) {
  return text.size() - absl::StripLeadingAsciiWhitespace(text).size();
}

void AddType(const ordered_json& type, ParameterKinds* kinds) {
  if (type == "string") {
    kinds->string = true;
  } else if (type == "boolean") {
    kinds->boolean = true;
  } else if (type == "null") {
    kinds->null = true;
  } else {
    kinds->other = true;
  }
}

// From "type", a name or a list of names, or from the schema's alternatives.
void AddKinds(const ordered_json& schema, int depth, ParameterKinds* kinds) {
  constexpr int kMaxDepth = 8;
  if (const ordered_json* const type = MemberOf(&schema, "type"); type != nullptr) {
    if (!type->is_array()) return AddType(*type, kinds);
    for (const ordered_json& each : *type) AddType(each, kinds);
    return;
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const ordered_json* const schemas = MemberOf(&schema, name);
    if (schemas == nullptr || !schemas->is_array() || depth == kMaxDepth) continue;
    for (const ordered_json& each : *schemas) AddKinds(each, depth + 1, kinds);
  }
  const ordered_json* const values = MemberOf(&schema, "enum");
  if (values == nullptr || !values->is_array()) return;
  for (const ordered_json& each : *values) {
    AddType(each.is_string()    ? "string"
            : each.is_boolean() ? "boolean"
            : each.is_null()    ? "null"
                                : "other",
            kinds);
  }
}

}  // namespace

ParameterTypes::ParameterTypes(const ordered_json& tools) {
  if (!tools.is_array()) return;
  for (const ordered_json& tool : tools) {
    const ordered_json* const wrapped = MemberOf(&tool, "function");
    const ordered_json* const function = wrapped != nullptr ? wrapped : &tool;
    const ordered_json* const name = MemberOf(function, "name");
    const ordered_json* const properties = MemberOf(MemberOf(function, "parameters"), "properties");
    if (name == nullptr || !name->is_string()) continue;
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      ParameterKinds kinds;
      AddKinds(property, 0, &kinds);
      kinds_.emplace(std::pair(name->get_ref<const std::string&>(), key), kinds);
    }
  }
}

ParameterKinds ParameterTypes::KindsOf(const std::string& function,
                                       const std::string& parameter) const {
  const auto found = kinds_.find(std::pair(function, parameter));
  return found == kinds_.end() ? ParameterKinds() : found->second;
}

TaggedArguments::Result TaggedArguments::Read(std::string* buffer, std::string* out) {
  while (true) {
    if (in_value_ && !(is_string_ ? ReadString(buffer, out) : ReadJson(buffer, out))) {
      return Result::kMore;
    }
    const Result result = ReadKey(buffer, out);
    if (result == Result::kForeign && count_ > 0) *out += "}";
    if (!in_value_) return result;
  }
}

// Reads to the beginning of the next value, or to the end of the call.
TaggedArguments::Result TaggedArguments::ReadKey(std::string* buffer, std::string* out) {
  const string_view text = string_view(*buffer).substr(SpaceOf(*buffer));
  if (buffer->size() - text.size() > kMaxKeyBytes) return Result::kForeign;
  if (MayBecome(text, tags_.end) || MayBecome(text, tags_.open_key)) return Result::kMore;
  if (absl::StartsWith(text, tags_.end)) {
    buffer->erase(0, buffer->size() - text.size() + tags_.end.size());
    *out += count_ == 0 ? "{}" : "}";
    return Result::kEnd;
  }
  if (!absl::StartsWith(text, tags_.open_key)) return Result::kForeign;
  const size_t close = text.substr(0, kMaxKeyBytes).find(tags_.close_key, tags_.open_key.size());
  if (close == string_view::npos) {
    return text.size() > kMaxKeyBytes ? Result::kForeign : Result::kMore;
  }
  string_view rest = text.substr(close + tags_.close_key.size());
  if (!tags_.open_value.empty()) {
    const size_t space = SpaceOf(rest);
    rest.remove_prefix(space);
    if (space > kMaxKeyBytes) return Result::kForeign;
    if (MayBecome(rest, tags_.open_value)) return Result::kMore;
    if (!absl::ConsumePrefix(&rest, tags_.open_value)) return Result::kForeign;
  }
  const std::string key(text.substr(tags_.open_key.size(), close - tags_.open_key.size()));
  kinds_ = types_->KindsOf(function_, key);
  in_value_ = at_begin_ = true;
  is_string_ = kinds_.known() ? kinds_.string_alone() : !tags_.guesses_types;
  searched_ = 0;
  absl::StrAppend(out, count_++ == 0 ? "{" : ", ", "\"");
  AppendJsonCharacters(key, out);
  absl::StrAppend(out, "\": ", is_string_ ? "\"" : "");
  buffer->erase(0, buffer->size() - rest.size());
  return Result::kMore;
}

// The JSON of a value that need not be a string; empty if it is one. Templates print earlier calls
// in Python's form, so models write Python's words, lists and dicts.
std::string TaggedArguments::AsJson(string_view value) const {
  if (kinds_.boolean && (value == "True" || value == "False")) {
    return absl::AsciiStrToLower(value);
  }
  if (value == "None" && (kinds_.null || (kinds_.known() && !kinds_.string))) return "null";
  const bool string_or_null = kinds_.string && !kinds_.boolean && !kinds_.other;
  const bool is_json = string_or_null ? value == "null" : ordered_json::accept(value);
  if (is_json) return std::string(value);
  return kinds_.other ? PythonLiteralAsJson(value) : "";
}

// False if it needs more text.
bool TaggedArguments::ReadString(std::string* buffer, std::string* out) {
  if (at_begin_ && tags_.has_line_breaks) {
    if (buffer->empty()) return false;
    if ((*buffer)[0] == '\n') buffer->erase(0, 1);
  }
  at_begin_ = false;
  size_t which = 0, safe = 0;
  const size_t at = FindMarker(*buffer, {tags_.close_value}, &which, &safe);
  const bool ends = at != std::string::npos;
  string_view value = string_view(*buffer).substr(0, ends ? at : safe);
  if (tags_.has_line_breaks) absl::ConsumeSuffix(&value, "\n");  // else it comes with the next text
  AppendJsonCharacters(value, out);
  buffer->erase(0, ends ? at + tags_.close_value.size() : value.size());
  if (!ends) return false;
  *out += '"';
  in_value_ = false;
  return true;
}

bool TaggedArguments::ReadJson(std::string* buffer, std::string* out) {
  const size_t end = string_view(*buffer).find(tags_.close_value, searched_);
  searched_ = buffer->size() - std::min(buffer->size(), tags_.close_value.size());
  if (end > kMaxCallBytes) {
    if (buffer->size() <= kMaxCallBytes + tags_.close_value.size()) return false;
    is_string_ = true;  // no other type is possible any more
    *out += '"';
    return ReadString(buffer, out);
  }
  string_view value = string_view(*buffer).substr(0, end);
  const std::string json = AsJson(absl::StripAsciiWhitespace(value));
  if (!json.empty()) {
    *out += json;
  } else {
    if (tags_.has_line_breaks) {
      absl::ConsumePrefix(&value, "\n");
      absl::ConsumeSuffix(&value, "\n");
    }
    *out += '"';
    AppendJsonCharacters(value, out);
    *out += '"';
  }
  buffer->erase(0, end + tags_.close_value.size());
  in_value_ = false;
  return true;
}

void TaggedArguments::Finish(string_view buffer, std::string* out) const {
  if (!in_value_) return;
  if (is_string_) {
    AppendJsonCharacters(buffer, out);
  } else {
    absl::StrAppend(out, buffer);
  }
}

}  // namespace bulkhead
