#include "runtime/structured/schema_keywords.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace bulkhead::structured {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kAnnotations[] = {
    "title",      "description",   "default",  "examples", "example",
    "$schema",    "$id",           "$comment", "$defs",    "definitions",
    "deprecated", "discriminator", "readOnly", "writeOnly"};

constexpr absl::string_view kGeneral[] = {"type",  "enum",  "const", "anyOf",
                                          "oneOf", "allOf", "$ref"};

// Keywords with the type they are about.
constexpr std::pair<absl::string_view, absl::string_view> kTyped[] = {
    {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
    {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
    {"maxItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
    {"pattern", "string"},    {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};

bool IsAnnotation(absl::string_view keyword) {
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
         std::end(kAnnotations);
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
      absl::StrCat("JSON schema, ", path, ": ", what, " is not supported"));
}

absl::Status CheckKeywords(const Json& schema, absl::string_view path) {
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword) || !TypeOfKeyword(keyword).empty()) continue;
    if (std::find(std::begin(kGeneral), std::end(kGeneral), keyword) != std::end(kGeneral)) {
      continue;
    }
    return UnsupportedSchema(path, absl::StrCat("\"", keyword, "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckAlone(const Json& schema, absl::string_view path, absl::string_view keyword,
                        absl::string_view also) {
  for (const auto& [other, value] : schema.items()) {
    if (other == keyword || other == also || IsAnnotation(other)) continue;
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
  const bool valid = field->is_number_integer() && *field >= 0 && *field <= kMost;
  if (!valid) {
    return InvalidSchema(path,
                         absl::StrCat("\"", keyword, "\" must be an integer of 0 to ", kMost));
  }
  return field->get<int>();
}

absl::StatusOr<absl::string_view> FormatPattern(absl::string_view path, absl::string_view format) {
  // Days up to 28, so that every date exists; seconds without the leap second.
  static constexpr std::pair<absl::string_view, absl::string_view> kFormats[] = {
      {"date", R"(^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$)"},
      {"time", R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)"},
      {"date-time",
       R"(^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)"},
      {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
      {"ipv4", R"(^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$)"}};
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return UnsupportedSchema(path, absl::StrCat("\"format\" \"", format, "\""));
}

}  // namespace bulkhead::structured
