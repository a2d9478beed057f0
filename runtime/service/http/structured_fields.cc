#include "runtime/service/http/structured_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"
#include "runtime/structured/grammar.h"

namespace bulkhead {
namespace {

// A schema is an object, true, false, or a text that holds one.
absl::Status SetSchema(const Json& schema, const std::string& field, v1::GenerateRequest* request) {
  if (schema.is_string()) {
    request->mutable_structured()->set_json_schema(schema.get<std::string>());
  } else if (schema.is_object()) {
    request->mutable_structured()->set_json_schema(schema.dump());
  } else {
    return WrongValue(field, schema, "a JSON schema, an object");
  }
  return absl::OkStatus();
}

absl::Status SetRegex(const Json& pattern, const std::string& field, v1::GenerateRequest* request) {
  if (!pattern.is_string()) return WrongValue(field, pattern, "a regular expression, a text");
  request->mutable_structured()->set_regex(pattern.get<std::string>());
  return absl::OkStatus();
}

absl::Status SetChoice(const Json& texts, const std::string& field, v1::GenerateRequest* request) {
  const bool fits =
      texts.is_array() && !texts.empty() && texts.size() <= structured::kMaxChoices &&
      std::all_of(texts.begin(), texts.end(), [](const Json& text) { return text.is_string(); });
  if (!fits) {
    return WrongValue(field, texts,
                      absl::StrCat("a list of 1 to ", structured::kMaxChoices, " texts"));
  }
  for (const Json& text : texts) {
    request->mutable_structured()->mutable_choice()->add_texts(text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadStructuredOutputs(const Json& object, v1::GenerateRequest* request) {
  if (!object.is_object()) return WrongValue("structured_outputs", object, "an object");
  JsonFields fields(object, "structured_outputs.");
  int num_forms = 0;
  if (const Json* schema = fields.Find("json"); schema != nullptr) {
    ++num_forms;
    BH_RETURN_IF_ERROR(SetSchema(*schema, fields.Path("json"), request));
  }
  if (const Json* pattern = fields.Find("regex"); pattern != nullptr) {
    ++num_forms;
    BH_RETURN_IF_ERROR(SetRegex(*pattern, fields.Path("regex"), request));
  }
  if (const Json* texts = fields.Find("choice"); texts != nullptr) {
    ++num_forms;
    BH_RETURN_IF_ERROR(SetChoice(*texts, fields.Path("choice"), request));
  }
  std::optional<bool> any_object;
  BH_RETURN_IF_ERROR(fields.Read("json_object", &any_object));
  if (any_object.value_or(false)) {
    ++num_forms;
    request->mutable_structured()->set_json_object(true);
  }
  // Settings of vLLM's backends; this server always behaves like their defaults.
  BH_RETURN_IF_ERROR(
      fields.Refuse({"disable_any_whitespace", "disable_additional_properties", "disable_fallback"},
                    {false}, "only false is supported"));
  BH_RETURN_IF_ERROR(fields.Finish());  // grammar, structural_tag, ...
  if (num_forms == 1) return absl::OkStatus();
  return InvalidField(
      "structured_outputs",
      absl::StrCat("has ", num_forms, " forms; send one of json, regex, choice and json_object"));
}

// The field of the body that a grammar is compiled from.
std::string FieldOfForm(const std::string& given, const v1::StructuredOutput& form) {
  if (given == "response_format") {
    return form.has_json_schema() ? "response_format.json_schema.schema" : given;
  }
  if (given != "structured_outputs") return given;
  if (form.has_json_schema()) return "structured_outputs.json";
  if (form.has_regex()) return "structured_outputs.regex";
  return form.has_choice() ? "structured_outputs.choice" : "structured_outputs.json_object";
}

}  // namespace

absl::Status ReadResponseFormat(const Json& format, const std::string& name,
                                v1::GenerateRequest* request) {
  if (!format.is_object()) return WrongValue(name, format, "an object with a type");
  JsonFields fields(format, absl::StrCat(name, "."));
  const Json* type = fields.Find("type");
  if (type == nullptr) return InvalidField(fields.Path("type"), "is missing");
  if (*type == "structural_tag") {
    return NotSupported(fields.Path("type"),
                        "structural_tag is not supported; use json_schema or json_object");
  }
  if (*type == "json_schema") {
    const Json* wrapper = fields.Find("json_schema");
    if (wrapper == nullptr || !wrapper->is_object()) {
      return InvalidField(fields.Path("json_schema"), "is missing; send {\"name\", \"schema\"}");
    }
    JsonFields inner(*wrapper, fields.Path("json_schema."));
    inner.Ignore({"name", "description", "strict"});  // an answer is always held to the schema
    const Json* schema = inner.Find("schema");
    if (schema == nullptr) return InvalidField(inner.Path("schema"), "is missing");
    BH_RETURN_IF_ERROR(SetSchema(*schema, inner.Path("schema"), request));
    BH_RETURN_IF_ERROR(inner.Finish());
  } else if (*type == "json_object") {
    request->mutable_structured()->set_json_object(true);
  } else if (*type != "text") {
    return WrongValue(fields.Path("type"), *type, "text, json_object or json_schema");
  }
  return fields.Finish();
}

absl::Status ReadStructured(JsonFields& fields, v1::GenerateRequest* request,
                            std::string* form_field) {
  std::vector<std::string> given;
  const auto take = [&](const char* name) {
    const Json* value = fields.Find(name);
    if (value != nullptr) given.emplace_back(name);
    return value;
  };
  if (const Json* value = fields.Find("response_format"); value != nullptr) {
    BH_RETURN_IF_ERROR(ReadResponseFormat(*value, "response_format", request));
    if (request->has_structured()) given.emplace_back("response_format");
  }
  if (const Json* value = take("structured_outputs"); value != nullptr) {
    BH_RETURN_IF_ERROR(ReadStructuredOutputs(*value, request));
  }
  if (const Json* value = take("guided_json"); value != nullptr) {
    BH_RETURN_IF_ERROR(SetSchema(*value, "guided_json", request));
  }
  if (const Json* value = take("guided_regex"); value != nullptr) {
    BH_RETURN_IF_ERROR(SetRegex(*value, "guided_regex", request));
  }
  if (const Json* value = take("guided_choice"); value != nullptr) {
    BH_RETURN_IF_ERROR(SetChoice(*value, "guided_choice", request));
  }
  if (given.size() > 1) {
    return InvalidField(given[1], absl::StrCat("excludes ", given[0], "; send one of them"));
  }
  if (!given.empty()) *form_field = FieldOfForm(given[0], request->structured());
  return absl::OkStatus();
}

}  // namespace bulkhead
