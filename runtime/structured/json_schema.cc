#include "runtime/structured/json_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "runtime/structured/number_range.h"
#include "runtime/structured/regex.h"
#include "runtime/structured/schema_keywords.h"

namespace bulkhead::structured {
namespace {

using Json = nlohmann::ordered_json;

// For GrammarBuilder::Count: work of a schema's keywords, of a JSON value, and of one of its bytes.
constexpr size_t kSchemaWork = 500;
constexpr size_t kValueWork = 80;
constexpr size_t kByteWork = 10;

std::string Written(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The number of values in a value, itself included.
size_t NumValues(const Json& value) {
  size_t count = 1;
  if (value.is_structured()) {
    for (const Json& inner : value) count += NumValues(inner);
  }
  return count;
}

// Whether `value` has JSON schema's `type`.
bool HasType(const Json& value, absl::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return value.is_object();
}

}  // namespace

absl::StatusOr<int32_t> JsonSchemaCompiler::Compile() { return SchemaRule({root_, "#", 0}); }

absl::StatusOr<int32_t> JsonSchemaCompiler::SchemaRule(const Place& place) {
  builder_.Count(kSchemaWork + place.path.size());
  if (const absl::Status checked = builder_.Check(); !checked.ok()) {
    return absl::Status(checked.code(), absl::StrCat("JSON schema: ", checked.message()));
  }
  if (place.depth > kMaxSchemaDepth) {
    return InvalidSchema(place.path,
                         absl::StrCat("more than ", kMaxSchemaDepth, " schemas inside each other"));
  }
  if (place.schema.is_boolean()) {
    if (place.schema.get<bool>()) return json_.Any();
    return builder_.AddRule(false, [this](int32_t) { return builder_.Bytes({}); });
  }
  if (!place.schema.is_object()) {
    return InvalidSchema(place.path, "a schema must be an object, true or false");
  }
  return KeywordsRule(place);
}

absl::StatusOr<int32_t> JsonSchemaCompiler::KeywordsRule(const Place& place) {
  const Json& schema = place.schema;
  BH_RETURN_IF_ERROR(CheckKeywords(schema, place.path));
  if (schema.contains("$ref")) return RefRule(place);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (schema.contains(keyword)) return AlternativesRule(place, keyword);
  }
  if (schema.contains("enum") || schema.contains("const")) return LiteralsRule(place);
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(schema, place.path));
  if (types.empty()) return json_.Any();
  std::vector<int32_t> rules;
  for (const std::string& type : types) {
    BH_ASSIGN_OR_RETURN(const int32_t rule, TypeRule(place, type));
    rules.push_back(rule);
  }
  if (rules.size() == 1) return rules[0];
  return builder_.AddRule(false, [&](int32_t next) {
    std::vector<int32_t> starts;
    for (const int32_t rule : rules) starts.push_back(builder_.Call(rule, next));
    return builder_.Split(starts);
  });
}

absl::StatusOr<int32_t> JsonSchemaCompiler::TypeRule(const Place& place, absl::string_view type) {
  if (type == "object") return ObjectRule(place);
  if (type == "array") return ArrayRule(place);
  if (type == "string") return StringRule(place);
  if (type == "number" || type == "integer") return NumberRule(place, type == "integer");
  const std::vector<std::string> texts =
      type == "null" ? std::vector<std::string>{"null"} : std::vector<std::string>{"true", "false"};
  return builder_.AddRule(false, [&](int32_t next) { return builder_.AnyOf(texts, next); });
}

absl::StatusOr<const Json*> JsonSchemaCompiler::Resolve(const Place& place,
                                                        absl::string_view ref) const {
  if (ref.empty() || ref[0] != '#' || (ref.size() > 1 && ref[1] != '/')) {
    return UnsupportedSchema(place.path,
                             absl::StrCat("\"$ref\" to \"", ref, "\", outside the schema,"));
  }
  const Json* at = &root_;
  std::vector<std::string> steps;
  if (ref.size() > 2) steps = absl::StrSplit(ref.substr(2), '/');
  for (std::string& step : steps) {
    step = absl::StrReplaceAll(step, {{"~1", "/"}, {"~0", "~"}, {"%25", "%"}, {"%20", " "}});
    size_t index = 0;
    if (at->is_object() && at->contains(step)) {
      at = &(*at)[step];
    } else if (at->is_array() && absl::SimpleAtoi(step, &index) && index < at->size()) {
      at = &(*at)[index];
    } else {
      return InvalidSchema(place.path,
                           absl::StrCat("\"$ref\" to \"", ref, "\", which is not there"));
    }
  }
  return at;
}

absl::StatusOr<int32_t> JsonSchemaCompiler::RefRule(const Place& place) {
  BH_RETURN_IF_ERROR(CheckAlone(place.schema, place.path, "$ref", {"type"}));
  const Json& ref = place.schema["$ref"];
  if (!ref.is_string()) return InvalidSchema(place.path, "\"$ref\" must be a string");
  const std::string& pointer = ref.get_ref<const std::string&>();
  BH_ASSIGN_OR_RETURN(const Json* const target, Resolve(place, pointer));
  if (place.schema.contains("type")) {
    BH_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(place.schema, place.path));
    const bool same = target->is_object() && target->contains("type") &&
                      TypesOf(*target, pointer).value_or(types) == types;
    if (!same) return UnsupportedSchema(place.path, "\"type\" beside \"$ref\" to another one");
  }
  const auto found = refs_.find(target);
  if (found != refs_.end()) return found->second;
  const int32_t rule = builder_.DeclareRule(false);
  refs_[target] = rule;
  BH_ASSIGN_OR_RETURN(const int32_t called, SchemaRule({*target, pointer, place.depth + 1}));
  builder_.DefineRule(rule, [&](int32_t next) { return builder_.Call(called, next); });
  return rule;
}

// Whether an alternative has no type. The schema may have a type next to its alternatives, as
// gateways write it, which then also applies to those without one.
absl::StatusOr<bool> JsonSchemaCompiler::LacksType(const Place& place, const Json& alternative,
                                                   absl::string_view keyword) const {
  if (!place.schema.contains("type") || !alternative.is_object()) return false;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(place.schema, place.path));
  if (!alternative.contains("type")) return true;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> own, TypesOf(alternative, place.path));
  const auto has = [&types](absl::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  const bool within = std::all_of(own.begin(), own.end(), [&has](const std::string& type) {
    return has(type) || (type == "integer" && has("number"));
  });
  if (within) return false;
  return UnsupportedSchema(
      place.path, absl::StrCat("\"type\" beside \"", keyword, "\" with other types inside"));
}

absl::StatusOr<int32_t> JsonSchemaCompiler::AlternativesRule(const Place& place,
                                                             absl::string_view keyword) {
  BH_RETURN_IF_ERROR(CheckAlone(place.schema, place.path, keyword, {"type"}));
  const Json& list = place.schema[std::string(keyword)];
  if (!list.is_array() || list.empty()) {
    return InvalidSchema(place.path, absl::StrCat("\"", keyword, "\" must be a list of schemas"));
  }
  if (keyword == "allOf" && list.size() > 1) {
    return UnsupportedSchema(place.path, "\"allOf\" of more than one schema");
  }
  std::vector<int32_t> rules;
  for (size_t i = 0; i < list.size(); ++i) {
    BH_ASSIGN_OR_RETURN(const bool lacks_type, LacksType(place, list[i], keyword));
    Json typed;
    if (lacks_type) {
      builder_.Count(kValueWork * NumValues(list[i]));
      typed = list[i];
      typed["type"] = place.schema["type"];
    }
    const std::string path = absl::StrCat(place.path, "/", keyword, "/", i);
    BH_ASSIGN_OR_RETURN(const int32_t rule,
                        SchemaRule({lacks_type ? typed : list[i], path, place.depth + 1}));
    rules.push_back(rule);
  }
  return builder_.AddRule(false, [&](int32_t next) {
    std::vector<int32_t> starts;
    for (const int32_t rule : rules) starts.push_back(builder_.Call(rule, next));
    return builder_.Split(starts);
  });
}

absl::StatusOr<int32_t> JsonSchemaCompiler::LiteralsRule(const Place& place) {
  const bool is_const = place.schema.contains("const");
  BH_RETURN_IF_ERROR(
      CheckAlone(place.schema, place.path, is_const ? "const" : "enum", {"enum", "type"}));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(place.schema, place.path));
  const Json one = is_const ? Json::array({place.schema["const"]}) : Json();
  const Json& values = place.schema.contains("enum") ? place.schema["enum"] : one;
  if (!values.is_array()) return InvalidSchema(place.path, "\"enum\" must be a list");
  std::vector<std::string> texts;
  for (const Json& value : values) {
    const bool typed = std::any_of(types.begin(), types.end(), [&value](const std::string& type) {
      return HasType(value, type);
    });
    builder_.Count(kValueWork);
    if (!types.empty() && !typed) continue;
    if (is_const && value != place.schema["const"]) continue;
    texts.push_back(Written(value));
    builder_.Count(kByteWork * texts.back().size());
  }
  return builder_.AddRule(false,
                          [&](int32_t next) { return builder_.AnyOf(std::move(texts), next); });
}

absl::StatusOr<int32_t> JsonSchemaCompiler::FieldRule(const Place& place, const char* keyword,
                                                      int32_t absent) {
  const auto field = place.schema.find(keyword);
  if (field == place.schema.end()) return absent;
  return SchemaRule({*field, absl::StrCat(place.path, "/", keyword), place.depth + 1});
}

absl::StatusOr<int32_t> JsonSchemaCompiler::StringRule(const Place& place) {
  const Json& schema = place.schema;
  BH_ASSIGN_OR_RETURN(const int min, CountOf(schema, place.path, "minLength", 0));
  BH_ASSIGN_OR_RETURN(const int max, CountOf(schema, place.path, "maxLength", -1));
  const bool has_pattern = schema.contains("pattern");
  // Next to a pattern, format only names what the pattern describes.
  const bool has_format =
      !has_pattern && schema.contains("format") &&
      !(schema["format"].is_string() && IsMeaning(schema["format"].get_ref<const std::string&>()));
  if (!has_pattern && !has_format) {
    if (min == 0 && max < 0) return json_.String();
    if (max >= 0 && min > max) return InvalidSchema(place.path, "minLength > maxLength");
    return builder_.AddRule(false, [&](int32_t next) { return json_.StringOf(min, max, next); });
  }
  const char* const keyword = has_pattern ? "pattern" : "format";
  if (min > (has_format ? 1 : 0) || max >= 0) {
    return UnsupportedSchema(
        place.path, absl::StrCat("\"minLength\" or \"maxLength\" beside \"", keyword, "\""));
  }
  if (!schema[keyword].is_string()) {
    return InvalidSchema(place.path, absl::StrCat("\"", keyword, "\" must be a string"));
  }
  const std::string& text = schema[keyword].get_ref<const std::string&>();
  absl::string_view pattern = text;
  if (has_format) {
    BH_ASSIGN_OR_RETURN(pattern, FormatPattern(place.path, text));
  }
  absl::StatusOr<Regex> regex = Regex::Parse(pattern);
  if (!regex.ok()) {
    return absl::Status(
        regex.status().code(),
        absl::StrCat("JSON schema, ", place.path, "/", keyword, ": ", regex.status().message()));
  }
  return builder_.AddRule(false, [&](int32_t next) {
    const int32_t end = builder_.Literal("\"", next);
    return builder_.Literal("\"", regex->Emit(builder_, Writing::kJsonString, true, end));
  });
}

absl::StatusOr<int32_t> JsonSchemaCompiler::NumberRule(const Place& place, bool integer) {
  NumberRange range = {.integer = integer};
  const auto read = [&](const char* keyword, std::optional<Decimal>* bound) -> absl::Status {
    const auto field = place.schema.find(keyword);
    if (field == place.schema.end()) return absl::OkStatus();
    absl::StatusOr<Decimal> decimal = ToDecimal(*field);
    if (!decimal.ok()) {
      return InvalidSchema(place.path,
                           absl::StrCat("\"", keyword, "\" ", decimal.status().message()));
    }
    *bound = *std::move(decimal);
    return absl::OkStatus();
  };
  BH_RETURN_IF_ERROR(read("minimum", &range.min));
  BH_RETURN_IF_ERROR(read("maximum", &range.max));
  std::optional<Decimal> above, below;
  BH_RETURN_IF_ERROR(read("exclusiveMinimum", &above));
  BH_RETURN_IF_ERROR(read("exclusiveMaximum", &below));
  // Of two bounds on one side the narrower applies.
  const Json& schema = place.schema;
  range.exclusive_min = above.has_value() &&
                        (!range.min.has_value() || schema["minimum"] <= schema["exclusiveMinimum"]);
  range.exclusive_max = below.has_value() &&
                        (!range.max.has_value() || schema["maximum"] >= schema["exclusiveMaximum"]);
  if (range.exclusive_min) range.min = std::move(above);
  if (range.exclusive_max) range.max = std::move(below);
  if (!range.min.has_value() && !range.max.has_value()) {
    return integer ? json_.Integer() : json_.Number();
  }
  return builder_.AddRule(false,
                          [&](int32_t next) { return EmitNumberRange(range, builder_, next); });
}

}  // namespace bulkhead::structured
