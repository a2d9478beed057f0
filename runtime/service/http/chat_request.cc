#include "runtime/service/http/chat_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr std::array<absl::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                     "tool"};

absl::Status ReadMessages(JsonFields& fields, Json* out) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return InvalidField("messages", "is missing; send a list of messages");
  if (!messages->is_array() || messages->empty()) {
    return WrongValue("messages", *messages, "a list of at least one message");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    const std::string field = absl::StrCat("messages[", i, "]");
    if (!message.is_object()) return WrongValue(field, message, "an object with role and content");
    const auto role = message.find("role");
    const std::string role_field = absl::StrCat(field, ".role");
    if (role == message.end()) return InvalidField(role_field, "is missing");
    const bool known = role->is_string() && std::find(kRoles.begin(), kRoles.end(),
                                                      role->get<std::string>()) != kRoles.end();
    if (!known) {
      return WrongValue(role_field, *role, "one of system, developer, user, assistant, tool");
    }
  }
  *out = *messages;
  return absl::OkStatus();
}

// A schema may name several types.
bool IsOfObjects(const Json& schema) {
  if (!schema.is_object()) return false;
  const Json type = schema.value("type", Json("object"));
  return type.is_array() ? absl::c_linear_search(type, "object") : type == "object";
}

absl::Status ReadTools(JsonFields& fields, Json* out) {
  const Json* tools = fields.Find("tools");
  if (tools == nullptr) return absl::OkStatus();
  if (!tools->is_array()) return WrongValue("tools", *tools, "a list of tools");
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string field = absl::StrCat("tools[", i, "]");
    if (!tool.is_object() || tool.value("type", Json()) != "function") {
      return NotSupported(absl::StrCat(field, ".type"),
                          "only tools of type function are supported");
    }
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object() || !function->contains("name") ||
        !function->at("name").is_string() || function->at("name") == "") {
      return InvalidField(absl::StrCat(field, ".function.name"), "is missing");
    }
    const Json parameters = function->value("parameters", Json::object());
    if (!parameters.is_null() && !IsOfObjects(parameters)) {
      return InvalidField(absl::StrCat(field, ".function.parameters"),
                          "is not the schema of an object");
    }
  }
  if (!tools->empty()) *out = *tools;
  return absl::OkStatus();
}

// The tool named by {"type": "function", "function": {"name": ...}}.
absl::StatusOr<std::string> NamedTool(const Json& choice, const Json& tools) {
  if (choice.value("type", Json()) != "function") {
    return NotSupported(
        "tool_choice.type",
        "only function is supported; of fewer tools send these alone, with auto or required");
  }
  const Json function = choice.value("function", Json());
  const Json name = function.is_object() ? function.value("name", Json()) : Json();
  if (!name.is_string()) return InvalidField("tool_choice.function.name", "is missing");
  for (const Json& tool : tools) {
    if (tool.at("function").at("name") == name) return name.get<std::string>();
  }
  return WrongValue("tool_choice.function.name", name, "the name of one of tools");
}

// Null without tools; else auto, none, required, or a function's name.
absl::Status ReadToolChoice(JsonFields& fields, ChatCompletionRequest* out) {
  const Json* choice = fields.Find("tool_choice");
  const bool has_tools = !out->chat.tools.is_null();
  out->parses_tool_calls = has_tools;
  if (choice == nullptr || *choice == "auto") {
    // An answer with a form cannot contain a call.
    if (out->common.has_structured()) out->parses_tool_calls = false;
    return absl::OkStatus();
  }
  if (*choice == "none") {
    out->parses_tool_calls = false;
    out->chat.tools = nullptr;
    return absl::OkStatus();
  }
  if (*choice != "required" && !choice->is_object()) {
    return WrongValue("tool_choice", *choice, "auto, none, required, or an object with a function");
  }
  if (!has_tools) return InvalidField("tool_choice", "needs tools");
  // As in vLLM: agents send the form of their last answer along. Other forms are for this answer.
  if (absl::StartsWith(out->options.form_field, "response_format")) {
    out->common.clear_structured();
  }
  if (out->common.has_structured()) {
    return InvalidField("tool_choice", absl::StrCat("a call that is required excludes ",
                                                    out->options.form_field, "; send one of them"));
  }
  out->wanted_tool.emplace();
  if (choice->is_object()) {
    BH_ASSIGN_OR_RETURN(out->wanted_tool, NamedTool(*choice, out->chat.tools));
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(JsonFields& fields, const RequestRules& rules,
                          ChatCompletionRequest* out) {
  std::optional<bool> wanted;
  BH_RETURN_IF_ERROR(fields.Read("logprobs", &wanted));
  BH_ASSIGN_OR_RETURN(const std::optional<uint32_t> top,
                      ReadCount(fields, "top_logprobs", rules.max_logprobs));
  if (!wanted.value_or(false)) {
    if (top.value_or(0) == 0) return absl::OkStatus();
    return InvalidField("top_logprobs", "needs logprobs true");
  }
  out->options.logprobs = static_cast<int>(top.value_or(0));
  out->common.mutable_output()->set_logprobs(top.value_or(0));
  return absl::OkStatus();
}

// Unsupported fields, of chats only, that would change an answer.
absl::Status RefuseOthers(JsonFields& fields) {
  BH_RETURN_IF_ERROR(
      fields.Refuse({"audio", "chat_template", "moderation", "web_search_options"}, {}));
  BH_RETURN_IF_ERROR(fields.Refuse({"functions"}, {Json::array()}));
  BH_RETURN_IF_ERROR(fields.Refuse({"function_call"}, {"none"}));
  BH_RETURN_IF_ERROR(fields.Refuse({"verbosity"}, {"medium"}));
  BH_RETURN_IF_ERROR(
      fields.Refuse({"modalities"}, {Json::array({"text"})}, "only [\"text\"] is supported"));
  BH_RETURN_IF_ERROR(fields.Refuse({"echo"}, {false}, "chats are not repeated; leave it out"));
  return fields.Refuse({"prompt_logprobs"}, {},
                       "chats do not give them; send the tokens that /tokenize gives for messages "
                       "to /v1/completions, with max_tokens 0");
}

}  // namespace

absl::Status ReadConversation(JsonFields& fields, ChatRequest* chat) {
  BH_RETURN_IF_ERROR(ReadMessages(fields, &chat->messages));
  BH_RETURN_IF_ERROR(ReadTools(fields, &chat->tools));
  if (const Json* documents = fields.Find("documents"); documents != nullptr) {
    if (!documents->is_array()) return WrongValue("documents", *documents, "a list");
    chat->documents = *documents;
  }
  if (const Json* kwargs = fields.Find("chat_template_kwargs"); kwargs != nullptr) {
    if (!kwargs->is_object()) return WrongValue("chat_template_kwargs", *kwargs, "an object");
    chat->template_kwargs = *kwargs;
  }
  std::optional<std::string> effort;
  BH_RETURN_IF_ERROR(fields.Read("reasoning_effort", &effort));
  if (effort.has_value() && !chat->template_kwargs.contains("reasoning_effort")) {
    chat->template_kwargs["reasoning_effort"] = *effort;
  }
  std::optional<bool> add, go_on;
  BH_RETURN_IF_ERROR(fields.Read("add_generation_prompt", &add));
  BH_RETURN_IF_ERROR(fields.Read("continue_final_message", &go_on));
  chat->continue_final_message = go_on.value_or(false);
  chat->add_generation_prompt = add.value_or(!chat->continue_final_message);
  if (chat->add_generation_prompt && chat->continue_final_message) {
    return InvalidField("continue_final_message", "excludes add_generation_prompt");
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatCompletionRequest> ReadChat(Json body, const RequestRules& rules) {
  ChatCompletionRequest out;
  JsonFields fields(body);
  BH_RETURN_IF_ERROR(ReadGenerationOptions(fields, rules, &out.options, &out.common));
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    BH_RETURN_IF_ERROR(ReadMaxTokens(fields, name, 1, rules.max_model_len, &out.common));
  }
  BH_RETURN_IF_ERROR(ReadLogprobs(fields, rules, &out));
  BH_RETURN_IF_ERROR(ReadConversation(fields, &out.chat));
  BH_RETURN_IF_ERROR(ReadToolChoice(fields, &out));
  std::optional<bool> several, reasoning, add_special;
  BH_RETURN_IF_ERROR(fields.Read("parallel_tool_calls", &several));
  out.several_tool_calls = several.value_or(true);
  BH_RETURN_IF_ERROR(fields.Read("include_reasoning", &reasoning));
  out.includes_reasoning = reasoning.value_or(true);
  BH_RETURN_IF_ERROR(fields.Read("add_special_tokens", &add_special));
  // A template prints BOS itself.
  out.common.set_add_special_tokens(add_special.value_or(false));
  BH_RETURN_IF_ERROR(RefuseOthers(fields));
  BH_RETURN_IF_ERROR(fields.Finish());
  return out;
}

}  // namespace bulkhead
