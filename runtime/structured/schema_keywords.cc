#include "runtime/structured/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace bulkhead::structured {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kAnnotations[] = {
    "title",        "description", "default", "examples",    "example",         "$schema",
    "$id",          "$comment",    "$defs",   "definitions", "deprecated",      "discriminator",
    "readOnly",     "writeOnly",   "$anchor", "$vocabulary", "contentEncoding", "contentMediaType",
    "contentSchema"};

// Formats that describe a value's meaning, not how it is written.
constexpr absl::string_view kMeanings[] = {"password",  "binary",         "byte",  "path",
                                           "file-path", "directory-path", "int32", "int64",
                                           "float",     "double"};

constexpr absl::string_view kGeneral[] = {"type",  "enum",  "const", "anyOf",
                                          "oneOf", "allOf", "$ref"};

// Keywords with the type that they restrict.
constexpr std::pair<absl::string_view, absl::string_view> kTyped[] = {
    {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
    {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
    {"maxItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
    {"pattern", "string"},    {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};

// Whether an unsupported keyword with this value forbids nothing.
bool AllowsAll(absl::string_view keyword, const Json& value) {
  static const auto* const kNeutral = new std::vector<std::pair<absl::string_view, Json>>{
      {"uniqueItems", false},
      {"minProperties", 0},
      {"nullable", false},
      {"minContains", 0},
      {"dependentRequired", Json::object()},
      {"dependentSchemas", Json::object()},
      {"patternProperties", Json::object()},
      {"propertyNames", true},
      {"propertyNames", Json::object()},
      {"propertyNames", Json::object({{"type", "string"}})}};
  return std::any_of(kNeutral->begin(), kNeutral->end(), [&](const auto& neutral) {
    return neutral.first == keyword && neutral.second == value;
  });
}

// Whether the keyword has no effect on an answer.
bool IsAnnotation(absl::string_view keyword, const Json& value) {
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
             std::end(kAnnotations) ||
         absl::StartsWith(keyword, "x-") || AllowsAll(keyword, value);
}

absl::string_view TypeOfKeyword(absl::string_view keyword) {
  for (const auto& [name, type] : kTyped) {
    if (name == keyword) return type;
  }
  return {};
}

}  // namespace

absl::Status InvalidSchema(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("JSON schema, ", path, ": ", what));
}

absl::Status UnsupportedSchema(absl::string_view path, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("JSON schema, ", path, ": ", what,
                   " is not supported; leave it out, and check it in the answer"));
}

absl::Status CheckKeywords(const Json& schema, absl::string_view path) {
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword, value) || !TypeOfKeyword(keyword).empty()) continue;
    if (std::find(std::begin(kGeneral), std::end(kGeneral), keyword) != std::end(kGeneral)) {
      continue;
    }
    return UnsupportedSchema(path, absl::StrCat("\"", keyword, "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckAlone(const Json& schema, absl::string_view path, absl::string_view keyword,
                        std::initializer_list<absl::string_view> also) {
  for (const auto& [other, value] : schema.items()) {
    if (other == keyword || IsAnnotation(other, value)) continue;
    if (std::find(also.begin(), also.end(), other) != also.end()) continue;
    return UnsupportedSchema(path, absl::StrCat("\"", other, "\" beside \"", keyword, "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> TypesOf(const Json& schema, absl::string_view path) {
  static constexpr absl::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                                 "string", "array",   "object"};
  std::vector<std::string> types;
  const auto field = schema.find("type");
  if (field == schema.end()) {
    for (const auto& [keyword, value] : schema.items()) {
      const absl::string_view type = TypeOfKeyword(keyword);
      if (type.empty() || (!types.empty() && types[0] == type)) continue;
      if (!types.empty()) {
        return UnsupportedSchema(path, absl::StrCat("keywords of the types ", types[0], " and ",
                                                    type, " without \"type\""));
      }
      types.emplace_back(type);
    }
    return types;
  }
  const auto add = [&](const Json& name) {
    if (!name.is_string()) return false;
    const std::string& text = name.get_ref<const std::string&>();
    if (std::find(std::begin(kTypes), std::end(kTypes), text) == std::end(kTypes)) return false;
    if (std::find(types.begin(), types.end(), text) == types.end()) types.push_back(text);
    return true;
  };
  bool valid = !field->is_array() && add(*field);
  if (field->is_array() && !field->empty()) {
    valid = std::all_of(field->begin(), field->end(), add);
  }
  if (!valid) {
    return InvalidSchema(path,
                         "\"type\" must be null, boolean, integer, number, string, array, "
                         "object, or a list of these");
  }
  // Numbers include integers.
  const auto integer = std::find(types.begin(), types.end(), "integer");
  if (integer != types.end() && std::find(types.begin(), types.end(), "number") != types.end()) {
    types.erase(integer);
  }
  return types;
}

absl::StatusOr<int> CountOf(const Json& schema, absl::string_view path, const char* keyword,
                            int absent) {
  constexpr int kMost = 1 << 30;
  const auto field = schema.find(keyword);
  if (field == schema.end()) return absent;
  // A float without a fraction is an integer of JSON schema's.
  const bool valid = field->is_number() && *field >= 0 && *field <= kMost &&
                     std::trunc(field->get<double>()) == field->get<double>();
  if (!valid) {
    return InvalidSchema(path,
                         absl::StrCat("\"", keyword, "\" must be an integer of 0 to ", kMost));
  }
  return field->get<int>();
}

bool IsMeaning(absl::string_view format) {
  return std::find(std::begin(kMeanings), std::end(kMeanings), format) != std::end(kMeanings);
}

absl::StatusOr<absl::string_view> FormatPattern(absl::string_view path, absl::string_view format) {
  // A subset of what the format allows: days up to 28, so that every date exists; seconds without
  // the leap second; local parts of addresses without quotes; URIs without brackets.
  static constexpr std::pair<absl::string_view, absl::string_view> kFormats[] = {
      {"date", R"(^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$)"},
      {"time", R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)"},
      {"date-time",
       R"(^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)"},
      {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
      {"ipv4", R"(^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$)"},
      {"ipv6",
       R"(^(([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,7}:|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,5}(:[0-9a-f]{1,4}){2}|([0-9a-f]{1,4}:){1,4}(:[0-9a-f]{1,4}){3}|([0-9a-f]{1,4}:){1,3}(:[0-9a-f]{1,4}){4}|([0-9a-f]{1,4}:){1,2}(:[0-9a-f]{1,4}){5}|:(:[0-9a-f]{1,4}){1,7}|::)$)"},
      {"hostname",
       R"(^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){0,2}$)"},
      {"email",
       R"(^[a-zA-Z0-9_+-]+(\.[a-zA-Z0-9_+-]+)*@([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63}$)"},
      {"duration",
       R"(^P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))$)"},
      {"uri",
       R"(^[a-zA-Z][a-zA-Z0-9+.-]*:([a-zA-Z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(#([a-zA-Z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?$)"}};
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return UnsupportedSchema(path, absl::StrCat("\"format\" \"", format, "\""));
}

}  // namespace bulkhead::structured
