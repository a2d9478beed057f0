#include "runtime/service/http/chat_form.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/reasoning.h"
#include "runtime/service/http/openai_error.h"

namespace bulkhead {
namespace {

// Adjusts references in a schema that is now at `place` in another one. `by_name`: its members are
// schemas, whatever their names.
void MoveReferences(const std::string& place, bool by_name, Json* schema) {
  if (!schema->is_structured()) return;
  for (auto& [key, part] : schema->items()) {
    if (!by_name && key == "$ref" && part.is_string()) {
      const std::string old = part.get<std::string>();
      if (absl::StartsWith(old, "#")) part = absl::StrCat(place, old.substr(1));
    }
    const bool is_data = key == "enum" || key == "const" || key == "default" || key == "examples";
    if (!by_name && is_data) continue;
    const bool has_names = key == "properties" || key == "$defs" || key == "definitions";
    MoveReferences(place, !by_name && has_names, &part);
  }
}

// The schema of a tool's arguments: an object, empty without parameters.
Json ParametersOf(const Json& function) {
  Json parameters = function.value("parameters", Json());
  if (parameters.is_null() || parameters.empty()) parameters = {{"properties", Json::object()}};
  if (!parameters.contains("$ref")) parameters["type"] = "object";
  return parameters;
}

// {"name": ..., `arguments`: ...} for any of the tools, or the named one. Their parameters are
// definitions, by index in the list.
Json CallSchema(const Json& tools, const std::string& name, const char* arguments) {
  Json calls = Json::array(), definitions = Json::object();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i].at("function");
    if (!name.empty() && function.at("name") != name) continue;
    Json parameters = ParametersOf(function);
    const std::string key = absl::StrCat(i);
    const std::string place = absl::StrCat("#/$defs/", key);
    MoveReferences(place, /*by_name=*/false, &parameters);
    definitions[key] = std::move(parameters);
    Json properties;
    properties["name"] = Json{{"const", function.at("name")}};
    properties[arguments] = Json{{"$ref", place}};
    calls.push_back(Json{{"type", "object"},
                         {"properties", std::move(properties)},
                         {"required", Json::array({"name", arguments})},
                         {"additionalProperties", false}});
  }
  return Json{{"$defs", std::move(definitions)}, {"anyOf", std::move(calls)}};
}

absl::Status AddCall(const OutputFormat& format, ChatCompletionRequest* request) {
  v1::StructuredOutput& form = *request->common.mutable_structured();
  request->options.form_field = kToolsField;
  switch (format.tool) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwen3Coder:
    case ToolFormat::kHunyuan:  // their parsers also take Hermes's form
      form.set_json_schema(
          CallSchema(request->chat.tools, *request->wanted_tool, "arguments").dump());
      form.set_prefix("<tool_call>\n");
      form.set_suffix("\n</tool_call>");
      return absl::OkStatus();
    case ToolFormat::kLlama3Json:
      form.set_json_schema(
          CallSchema(request->chat.tools, *request->wanted_tool, "parameters").dump());
      return absl::OkStatus();
    case ToolFormat::kNone:
      return NotSupported("tool_choice",
                          "the model's format of calls is not known; start the server with "
                          "--tool-call-parser, or send auto or none");
    case ToolFormat::kSeedOss:
    case ToolFormat::kMiniMaxM2:
    case ToolFormat::kMistral:
    case ToolFormat::kGranite:
    case ToolFormat::kPhi4Mini:
    case ToolFormat::kCohere:
    case ToolFormat::kGemma4:
    case ToolFormat::kFunctionGemma:
    case ToolFormat::kDeepSeek:
    case ToolFormat::kHarmony:
    case ToolFormat::kGlm45:
    case ToolFormat::kKimiK2:
    case ToolFormat::kPythonic:
    case ToolFormat::kOlmo3:
    case ToolFormat::kLfm2:
      break;
  }
  return NotSupported(
      "tool_choice",
      "a call can be required of models with Hermes's, Qwen's, Hunyuan's or Llama 3's "
      "format of calls alone; send auto or none");
}

}  // namespace

absl::Status AddForm(const OutputFormat& format, absl::string_view prompt,
                     ChatCompletionRequest* request) {
  if (request->wanted_tool.has_value()) BH_RETURN_IF_ERROR(AddCall(format, request));
  if (!request->common.has_structured()) return absl::OkStatus();
  if (format.reasoning == ReasoningFormat::kHarmony) {
    return NotSupported("response_format",
                        "structured output is not supported with the channels of gpt-oss; leave it "
                        "out, and ask for the form in a message");
  }
  const ReasoningTags tags = TagsOf(format.reasoning);
  const auto start = StartAfterPrompt(tags, prompt, format.starts_in_reasoning);
  if (start == ReasoningParser::Start::kContent) return absl::OkStatus();
  if (format.reasoning != ReasoningFormat::kThinkTags &&
      format.reasoning != ReasoningFormat::kHunyuan) {
    // Other formats' tags are special tokens, without text that a form could wait for.
    if (start == ReasoningParser::Start::kUnknown) return absl::OkStatus();
    return NotSupported("response_format",
                        absl::StrCat("the prompt ends inside of ", tags.open,
                                     ", behind which no form can begin; ask for an answer without "
                                     "reasoning, or leave response_format out"));
  }
  request->common.mutable_structured()->set_free_until(std::string(tags.close));
  // The model may reason first, or not.
  if (start == ReasoningParser::Start::kUnknown) {
    request->common.mutable_structured()->set_free_from(std::string(tags.open));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
