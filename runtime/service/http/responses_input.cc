#include "runtime/service/http/responses_input.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// The types that a part of content may have.
constexpr absl::string_view kTextParts[] = {"input_text", "output_text", "text"};

// A text, or parts of text as a chat has them: "content" of a message, "output" of a call.
absl::Status ReadText(Json& value, const std::string& field, Json* out) {
  if (value.is_string()) {
    *out = std::move(value);
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongValue(field, value, "a text or a list of parts");
  Json parts = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    Json& part = value[i];
    const std::string name = absl::StrCat(field, "[", i, "]");
    if (!part.is_object()) return WrongValue(name, part, "an object with type and text");
    JsonFields fields(part, name + ".");
    std::optional<std::string> type;
    BH_RETURN_IF_ERROR(fields.Read("type", &type));
    const std::string key = type == "refusal" ? "refusal" : "text";
    bool is_text = type == "refusal";
    for (const absl::string_view known : kTextParts) is_text = is_text || type == known;
    if (!is_text) {
      return NotSupported(name + ".type", absl::StrCat(Quoted(type.value_or("")),
                                                       " is not supported, only text is: "
                                                       "input_text and output_text"));
    }
    const Json* text = fields.Find(key);
    if (text == nullptr || !text->is_string()) {
      return WrongValue(fields.Path(key), text == nullptr ? Json() : *text, "a text");
    }
    fields.Ignore({"annotations", "logprobs"});
    BH_RETURN_IF_ERROR(fields.Finish());
    parts.push_back({{"type", "text"}, {"text", std::move(part[key])}});
  }
  *out = parts.size() == 1 ? std::move(parts[0]["text"]) : std::move(parts);
  return absl::OkStatus();
}

class InputReader {
 public:
  explicit InputReader(Json* messages) : messages_(*messages) {}

  absl::Status Read(Json& item, const std::string& field) {
    if (!item.is_object()) return WrongValue(field, item, "an object");
    JsonFields fields(item, field + ".");
    std::optional<std::string> type;
    BH_RETURN_IF_ERROR(fields.Read("type", &type));
    fields.Ignore({"id", "status"});
    const std::string kind = type.value_or("message");
    if (kind == "message") return ReadMessage(item, fields);
    if (kind == "function_call") return ReadCall(fields);
    if (kind == "function_call_output") return ReadCallOutput(item, fields);
    if (kind == "reasoning") return ReadReasoning(item, fields);
    return NotSupported(field + ".type",
                        absl::StrCat(Quoted(kind),
                                     " is not supported, only message, function_call, "
                                     "function_call_output and reasoning are"));
  }

 private:
  absl::Status ReadMessage(Json& item, JsonFields& fields) {
    std::optional<std::string> role;
    BH_RETURN_IF_ERROR(fields.Read("role", &role));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return WrongValue(fields.Path("role"), role.has_value() ? Json(*role) : Json(),
                        "one of user, assistant, system, developer");
    }
    if (fields.Find("content") == nullptr)
      return InvalidField(fields.Path("content"), "is missing");
    fields.Ignore({"phase"});
    BH_RETURN_IF_ERROR(fields.Finish());
    Json message = {{"role", *role}, {"content", nullptr}};
    BH_RETURN_IF_ERROR(ReadText(item["content"], fields.Path("content"), &message["content"]));
    Add(std::move(message));
    return absl::OkStatus();
  }

  absl::Status ReadCall(JsonFields& fields) {
    std::optional<std::string> id, name, arguments;
    BH_RETURN_IF_ERROR(fields.Read("call_id", &id));
    BH_RETURN_IF_ERROR(fields.Read("name", &name));
    BH_RETURN_IF_ERROR(fields.Read("arguments", &arguments));
    if (!id.has_value()) return InvalidField(fields.Path("call_id"), "is missing");
    if (!name.has_value()) return InvalidField(fields.Path("name"), "is missing");
    if (!arguments.has_value()) return InvalidField(fields.Path("arguments"), "is missing");
    BH_RETURN_IF_ERROR(fields.Finish());
    const bool goes_on =
        !messages_.empty() && messages_.back()["role"] == "assistant" && reasoning_.empty();
    if (!goes_on) Add({{"role", "assistant"}, {"content", nullptr}});
    messages_.back()["tool_calls"].push_back(
        {{"id", *std::move(id)},
         {"type", "function"},
         {"function", {{"name", *std::move(name)}, {"arguments", *std::move(arguments)}}}});
    return absl::OkStatus();
  }

  absl::Status ReadCallOutput(Json& item, JsonFields& fields) {
    std::optional<std::string> id;
    BH_RETURN_IF_ERROR(fields.Read("call_id", &id));
    if (!id.has_value()) return InvalidField(fields.Path("call_id"), "is missing");
    if (fields.Find("output") == nullptr) return InvalidField(fields.Path("output"), "is missing");
    BH_RETURN_IF_ERROR(fields.Finish());
    Json message = {{"role", "tool"}, {"tool_call_id", *std::move(id)}, {"content", nullptr}};
    BH_RETURN_IF_ERROR(ReadText(item["output"], fields.Path("output"), &message["content"]));
    Add(std::move(message));
    return absl::OkStatus();
  }

  absl::Status ReadReasoning(Json& item, JsonFields& fields) {
    BH_RETURN_IF_ERROR(
        fields.Refuse({"encrypted_content"}, {},
                      "reasoning is never encrypted here; send its content, or leave it out"));
    const Json* content = fields.Find("content");
    fields.Ignore({"summary"});
    BH_RETURN_IF_ERROR(fields.Finish());
    if (content == nullptr) return absl::OkStatus();
    if (!content->is_array()) return WrongValue(fields.Path("content"), *content, "a list");
    for (size_t i = 0; i < content->size(); ++i) {
      const Json& part = (*content)[i];
      if (!part.is_object() || part.value("type", Json()) != "reasoning_text" ||
          !part.value("text", Json()).is_string()) {
        return WrongValue(absl::StrCat(fields.Path("content"), "[", i, "]"), part,
                          "an object of type reasoning_text with a text");
      }
      reasoning_ += item["content"][i]["text"].get_ref<const std::string&>();
    }
    return absl::OkStatus();
  }

  void Add(Json message) {
    if (message["role"] == "assistant" && !reasoning_.empty()) {
      message["reasoning_content"] = std::exchange(reasoning_, "");
    }
    reasoning_.clear();
    messages_.push_back(std::move(message));
  }

  Json& messages_;
  std::string reasoning_;  // for the assistant's next message
};

}  // namespace

absl::Status ReadInput(Json& input, Json* messages) {
  if (input.is_string()) {
    messages->push_back({{"role", "user"}, {"content", std::move(input)}});
    return absl::OkStatus();
  }
  if (!input.is_array() || input.empty()) {
    return WrongValue("input", input, "a text or a list of at least one item");
  }
  InputReader reader(messages);
  for (size_t i = 0; i < input.size(); ++i) {
    BH_RETURN_IF_ERROR(reader.Read(input[i], absl::StrCat("input[", i, "]")));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
