#include "runtime/service/http/responses_request.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "runtime/service/http/body_parts.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/responses_input.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// Fields with the same name and meaning as in a chat, which reads and checks them.
constexpr const char* kAsInChats[] = {"model",
                                      "stream",
                                      "temperature",
                                      "top_p",
                                      "top_k",
                                      "min_p",
                                      "seed",
                                      "repetition_penalty",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "logit_bias",
                                      "allowed_token_ids",
                                      "bad_words",
                                      "stop",
                                      "stop_token_ids",
                                      "min_tokens",
                                      "ignore_eos",
                                      "include_stop_str_in_output",
                                      "skip_special_tokens",
                                      "cache_salt",
                                      "priority",
                                      "parallel_tool_calls",
                                      "include_reasoning",
                                      "chat_template_kwargs",
                                      "structured_outputs"};

// Fields that need a store, which this server lacks, and others that are not supported.
absl::Status RefuseOthers(JsonFields& fields) {
  BH_RETURN_IF_ERROR(fields.Refuse(
      {"previous_response_id", "conversation", "previous_input_messages", "prompt"},
      {Json::array()}, "nothing is stored; send instructions and all items in input"));
  BH_RETURN_IF_ERROR(fields.Refuse({"background"}, {false},
                                   "answers are not made in the background; leave it out"));
  // Reasoning is never encrypted here: agents always ask for it.
  BH_RETURN_IF_ERROR(fields.Refuse({"include"},
                                   {Json::array(), Json::array({"reasoning.encrypted_content"})},
                                   "nothing more can be included; leave it out"));
  BH_RETURN_IF_ERROR(fields.Refuse({"truncation"}, {"disabled"},
                                   "input is never shortened; only disabled is supported"));
  BH_RETURN_IF_ERROR(fields.Refuse(
      {"top_logprobs"}, {0}, "log probabilities are not given here; use /v1/chat/completions"));
  BH_RETURN_IF_ERROR(fields.Refuse({"max_tool_calls"}, {}, "calls are not counted; leave it out"));
  BH_RETURN_IF_ERROR(fields.Refuse({"enable_response_messages"}, {false}));
  BH_RETURN_IF_ERROR(ReadUnused(fields));
  const Json* stream_options = fields.Find("stream_options");
  if (stream_options == nullptr) return absl::OkStatus();
  if (!stream_options->is_object()) {
    return WrongValue("stream_options", *stream_options, "an object");
  }
  JsonFields inner(*stream_options, "stream_options.");
  inner.Ignore({"include_obfuscation"});
  return inner.Finish();
}

// {"type", "name", ...} here, {"type", "function": {"name", ...}} in a chat.
absl::Status ReadTools(JsonFields& fields, Json* chat) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return WrongValue("tools", *tools, "a list of tools");
    Json& list = (*chat)["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const Json& tool = (*tools)[i];
      const std::string field = absl::StrCat("tools[", i, "]");
      if (!tool.is_object() || tool.value("type", Json()) != "function") {
        return NotSupported(field + ".type", "only tools of type function are supported");
      }
      Json function = tool;
      function.erase("type");
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr) return absl::OkStatus();
  if (choice->is_object() && choice->value("type", Json()) == "function") {
    (*chat)["tool_choice"] = {{"type", "function"},
                              {"function", {{"name", choice->value("name", Json())}}}};
  } else {
    (*chat)["tool_choice"] = *choice;
  }
  return absl::OkStatus();
}

// text.format as the chat's response_format.
absl::Status ReadText(JsonFields& fields, Json* chat) {
  const Json* text = fields.Find("text");
  if (text == nullptr) return absl::OkStatus();
  if (!text->is_object()) return WrongValue("text", *text, "an object");
  JsonFields inner(*text, "text.");
  BH_RETURN_IF_ERROR(inner.Refuse({"verbosity"}, {"medium"}, "only medium is supported"));
  const Json* format = inner.Find("format");
  BH_RETURN_IF_ERROR(inner.Finish());
  if (format == nullptr) return absl::OkStatus();
  if (!format->is_object()) return WrongValue("text.format", *format, "an object with a type");
  if (format->value("type", Json()) == "json_schema") {
    Json schema = *format;
    schema.erase("type");
    (*chat)["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  } else {
    (*chat)["response_format"] = *format;
  }
  return absl::OkStatus();
}

absl::Status ReadReasoning(JsonFields& fields, Json* chat) {
  const Json* reasoning = fields.Find("reasoning");
  if (reasoning == nullptr) return absl::OkStatus();
  if (!reasoning->is_object()) return WrongValue("reasoning", *reasoning, "an object");
  JsonFields inner(*reasoning, "reasoning.");
  std::optional<std::string> effort;
  BH_RETURN_IF_ERROR(inner.Read("effort", &effort));
  BH_RETURN_IF_ERROR(inner.Refuse({"summary", "generate_summary"}, {"auto"},
                                  "reasoning is given whole, without summaries"));
  BH_RETURN_IF_ERROR(inner.Refuse({"context", "mode"}, {"auto", "standard"}));
  if (effort.has_value()) (*chat)["reasoning_effort"] = *effort;
  return inner.Finish();
}

// Limits of the API.
absl::Status CheckMetadata(JsonFields& fields) {
  constexpr size_t kMostPairs = 16, kMostKeyBytes = 64 * 4, kMostValueBytes = 512 * 4;
  const Json* metadata = fields.Find("metadata");
  if (metadata == nullptr) return absl::OkStatus();
  bool fits = metadata->is_object() && metadata->size() <= kMostPairs;
  if (fits) {
    for (const auto& [key, value] : metadata->items()) {
      fits = fits && key.size() <= kMostKeyBytes && value.is_string() &&
             value.get_ref<const std::string&>().size() <= kMostValueBytes;
    }
  }
  if (fits) return absl::OkStatus();
  return WrongValue("metadata", *metadata,
                    "an object of at most 16 texts of 512 characters, with keys of 64");
}

// The value of a field, or `otherwise`, as JSON.
std::string Repeated(const Json& body, const char* name, const char* otherwise) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? otherwise : WithLineEndsEscaped(found->dump());
}

std::string EchoOf(const Json& body) {
  const Json reasoning = body.value("reasoning", Json());
  const Json text = body.value("text", Json());
  std::string echo = R"("background":false,"max_tool_calls":null,"previous_response_id":null,)"
                     R"("store":false,"top_logprobs":0,"truncation":"disabled",)";
  constexpr std::pair<const char*, const char*> kRepeated[] = {
      {"instructions", "null"}, {"max_output_tokens", "null"},
      {"metadata", "{}"},       {"parallel_tool_calls", "true"},
      {"temperature", "null"},  {"tool_choice", "\"auto\""},
      {"tools", "[]"},          {"top_p", "null"},
      {"user", "null"}};
  for (const auto& [name, otherwise] : kRepeated) {
    absl::StrAppend(&echo, "\"", name, "\":", Repeated(body, name, otherwise), ",");
  }
  absl::StrAppend(
      &echo, "\"reasoning\":{\"effort\":",
      reasoning.is_object() ? Repeated(reasoning, "effort", "null") : "null",
      ",\"summary\":null},\"text\":{\"format\":",
      text.is_object() ? Repeated(text, "format", "{\"type\":\"text\"}") : "{\"type\":\"text\"}",
      "},");
  return echo;
}

}  // namespace

absl::StatusOr<ResponsesRequest> ReadResponses(Json body, const RequestRules& rules) {
  ResponsesRequest out;
  Json chat = Json::object();
  std::string instructions;
  {
    JsonFields fields(body);
    BH_RETURN_IF_ERROR(RefuseOthers(fields));
    BH_RETURN_IF_ERROR(ReadTools(fields, &chat));
    BH_RETURN_IF_ERROR(ReadText(fields, &chat));
    BH_RETURN_IF_ERROR(ReadReasoning(fields, &chat));
    BH_RETURN_IF_ERROR(CheckMetadata(fields));
    std::optional<std::string> text;
    BH_RETURN_IF_ERROR(fields.Read("instructions", &text));
    instructions = text.value_or("");
    if (const Json* most = fields.Find("max_output_tokens"); most != nullptr) {
      chat["max_completion_tokens"] = *most;
    }
    for (const char* const name : kAsInChats) {
      if (const Json* value = fields.Find(name); value != nullptr) chat[name] = *value;
    }
    if (fields.Find("input") == nullptr) {
      return InvalidField("input", "is missing; send a text or a list of items");
    }
    BH_RETURN_IF_ERROR(fields.Finish());
  }
  out.echo = EchoOf(body);
  Json& messages = chat["messages"] = Json::array();
  if (!instructions.empty()) {
    messages.push_back({{"role", "system"}, {"content", std::move(instructions)}});
  }
  BH_RETURN_IF_ERROR(ReadInput(body["input"], &messages));
  body = nullptr;
  absl::StatusOr<ChatCompletionRequest> read = ReadChat(std::move(chat), rules);
  if (!read.ok()) return InResponsesFields(read.status());
  out.chat = *std::move(read);
  absl::string_view form = out.chat.options.form_field;
  if (absl::ConsumePrefix(&form, "response_format")) {
    absl::ConsumePrefix(&form, ".json_schema");
    out.chat.options.form_field = absl::StrCat("text.format", form);
  }
  return out;
}

absl::Status InResponsesFields(const absl::Status& status) {
  return WithFieldsRenamed(status, {{"messages", "input"},
                                    {"max_completion_tokens", "max_output_tokens"},
                                    {"reasoning_effort", "reasoning.effort"},
                                    {"response_format.json_schema", "text.format"},
                                    {"response_format", "text.format"}});
}

}  // namespace bulkhead
