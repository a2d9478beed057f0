// RenderChat: the messages of the OpenAI API as templates expect them.
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "base/status.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

absl::Status Wrong(size_t index, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("messages[", index, "]: ", why));
}

// A list of parts as a list of {type: text, text}.
absl::StatusOr<ordered_json> TextParts(const ordered_json& parts, size_t index) {
  ordered_json texts = ordered_json::array();
  for (const ordered_json& part : parts) {
    if (part.is_string()) {
      texts.push_back({{"type", "text"}, {"text", part}});
      continue;
    }
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      return Wrong(index, "a part of content is an object with a type, as {\"type\": \"text\"}");
    }
    const std::string& type = part["type"].get_ref<const std::string&>();
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      return Wrong(index, absl::StrCat("content of type '", type.substr(0, 40),
                                       "': this server serves text only"));
    }
    const char* field = type == "refusal" ? "refusal" : "text";
    if (!part.contains(field) || !part[field].is_string()) {
      return Wrong(index, absl::StrCat("a part of type ", type, " needs a string '", field, "'"));
    }
    texts.push_back({{"type", "text"}, {"text", part[field]}});
  }
  return texts;
}

std::string Joined(const ordered_json& texts) {
  std::string text;
  for (size_t i = 0; i < texts.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "\n" : "", texts[i]["text"].get_ref<const std::string&>());
  }
  return text;
}

// Arguments that are the text of a JSON object become that object; if a key occurs twice, as an
// open schema allows, the last one counts. Those of a cut-off answer stay a text.
ordered_json Opened(const std::string& text) {
  if (text.empty() || text == "null") return ordered_json::object();
  const auto opened = ParseOrderedJsonObject(text, "arguments", {}, /*last_key_counts=*/true);
  return opened.ok() ? *opened : ordered_json(text);
}

absl::Status OpenArguments(ordered_json* calls, size_t index) {
  if (!calls->is_array()) return Wrong(index, "tool_calls is not a list");
  for (ordered_json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      return Wrong(index, "a tool call needs an object 'function'");
    }
    ordered_json& function = call["function"];
    if (!function.contains("arguments")) {
      function["arguments"] = ordered_json::object();
      continue;
    }
    ordered_json& arguments = function["arguments"];
    if (arguments.is_object()) continue;
    if (arguments.is_null()) arguments = "";
    if (!arguments.is_string()) return Wrong(index, "arguments of a tool call are a string");
    arguments = Opened(arguments.get<std::string>());
  }
  return absl::OkStatus();
}

// Adds the reasoning under vLLM's current and earlier names and gpt-oss's template's name:
// templates read one of them.
void NameReasoning(ordered_json* message) {
  const char* const kThinking = "thinking";
  const char* const kNames[] = {"reasoning", "reasoning_content", kThinking};
  const ordered_json& fields = *message;
  ordered_json reasoning;
  for (const char* name : kNames) {
    if (reasoning.is_null() && fields.contains(name) && fields[name].is_string()) {
      reasoning = fields[name];
    }
  }
  if (reasoning.is_null()) return;
  const auto has = [&](const char* name) {
    return fields.contains(name) && !fields[name].is_null() && !fields[name].empty() &&
           fields[name] != "";
  };
  for (const char* name : kNames) {
    // gpt-oss's template refuses it together with the text of a message with calls.
    if (name == kThinking && has("content") && has("tool_calls")) continue;
    ordered_json& field = (*message)[name];
    if (field.is_null()) field = reasoning;
  }
}

absl::StatusOr<ordered_json> Prepared(const ordered_json& message, size_t index, bool keep_parts) {
  if (!message.is_object()) return Wrong(index, "is not an object");
  if (!message.contains("role") || !message["role"].is_string()) {
    return Wrong(index, "needs a string 'role'");
  }
  ordered_json result = message;
  NameReasoning(&result);
  if (!result.contains("content") || result["content"].is_null()) {
    result["content"] = "";
  } else if (result["content"].is_array()) {
    BH_ASSIGN_OR_RETURN(ordered_json texts, TextParts(result["content"], index));
    if (keep_parts) {
      result["content"] = std::move(texts);
    } else {
      result["content"] = Joined(texts);
    }
  } else if (!result["content"].is_string()) {
    return Wrong(index, absl::StrCat("content is ", JsonExcerpt(nlohmann::json(result["content"])),
                                     ", neither a string nor a list of parts"));
  }
  if (const ordered_json call = result.value("function_call", ordered_json()); !call.is_null()) {
    return Wrong(index, "function_call is not supported; write the call as one of tool_calls");
  }
  if (result.contains("tool_calls")) {
    if (result["tool_calls"].is_null()) {
      result.erase("tool_calls");
    } else {
      BH_RETURN_IF_ERROR(OpenArguments(&result["tool_calls"], index));
    }
  }
  return result;
}

absl::Status CheckList(const ordered_json& value, absl::string_view name) {
  if (value.is_null() || value.is_array()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is not a list"));
}

// Marks where the text of the last message ends. Random, so that it occurs nowhere else.
const std::string& EndTag() {
  static const std::string* const tag = [] {
    std::random_device device;
    return new std::string(absl::StrFormat("END_OF_MESSAGE_%08x%08x", device(), device()));
  }();
  return *tag;
}

// Puts the tag after the text of the last message, which the model continues, and returns that
// text. The space after the tag shows whether the template drops white space there.
absl::StatusOr<std::string> MarkEnd(ordered_json* message) {
  ordered_json& content = (*message)["content"];
  if (content.is_array() && content.empty()) content = "";
  ordered_json* const text = content.is_array() ? &content.back()["text"] : &content;
  std::string last = text->get<std::string>();
  if (jinja::StripLeft(last).empty()) {
    return absl::InvalidArgumentError("continue_final_message needs text in the last message");
  }
  *text = absl::StrCat(last, EndTag(), " ");
  return last;
}

// Drops what the template printed after the last message's text, as in transformers.
absl::Status CutBehind(const std::string& last, std::string* text) {
  const std::string& tag = EndTag();
  const size_t at = text->rfind(tag);
  const absl::string_view before = absl::string_view(*text).substr(0, at);
  const absl::string_view stripped = jinja::StripRight(before);
  if (at == std::string::npos ||
      !absl::EndsWith(stripped, jinja::StripRight(jinja::StripLeft(last)))) {
    return absl::InvalidArgumentError(
        "continue_final_message: the chat template does not print the last message as it is");
  }
  const bool keeps_space = text->compare(at + tag.size(), 1, " ") == 0;
  text->resize(keeps_space ? before.size() : stripped.size());
  // For a template that prints the message twice.
  absl::StrReplaceAll({{absl::StrCat(tag, " "), ""}, {tag, ""}}, text);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        const ChatRequest& request, const jinja::Limits& limits) {
  if (!request.messages.is_array() || request.messages.empty()) {
    return absl::InvalidArgumentError("messages is not a list of at least one message");
  }
  BH_RETURN_IF_ERROR(CheckList(request.tools, "tools"));
  BH_RETURN_IF_ERROR(CheckList(request.documents, "documents"));
  if (!request.template_kwargs.is_null() && !request.template_kwargs.is_object()) {
    return absl::InvalidArgumentError("chat_template_kwargs: is not an object");
  }
  constexpr size_t kMaxKwargs = 256;
  if (request.template_kwargs.size() > kMaxKwargs) {
    return absl::InvalidArgumentError(absl::StrCat("chat_template_kwargs: has ",
                                                   request.template_kwargs.size(),
                                                   " fields; at most ", kMaxKwargs));
  }
  if (request.continue_final_message && request.add_generation_prompt) {
    return absl::InvalidArgumentError(
        "continue_final_message and add_generation_prompt exclude each other; set one of them to "
        "false");
  }
  const bool has_tools = request.tools.is_array() && !request.tools.empty();
  BH_ASSIGN_OR_RETURN(const jinja::Template* chosen, chat_template.Choose(has_tools));
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i < request.messages.size(); ++i) {
    BH_ASSIGN_OR_RETURN(ordered_json message,
                        Prepared(request.messages[i], i, chosen->reads_content_parts()));
    messages.push_back(std::move(message));
  }
  ordered_json context = chat_template.special_tokens();
  if (request.template_kwargs.is_object()) {
    for (const auto& [name, value] : request.template_kwargs.items()) {
      static const std::set<std::string> kOwn = {"messages",
                                                 "tools",
                                                 "documents",
                                                 "chat_template",
                                                 "add_generation_prompt",
                                                 "continue_final_message",
                                                 "tokenize"};
      if (kOwn.contains(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("chat_template_kwargs: cannot set '", name, "'"));
      }
      context[name] = value;
    }
  }
  std::string last;
  if (request.continue_final_message) {
    BH_ASSIGN_OR_RETURN(last, MarkEnd(&messages.back()));
  }
  context["messages"] = std::move(messages);
  context["tools"] = has_tools ? request.tools : ordered_json(nullptr);
  context["documents"] = request.documents;
  context["add_generation_prompt"] = request.add_generation_prompt;
  RenderedChat rendered;
  BH_ASSIGN_OR_RETURN(rendered.text, chosen->Render(context, limits));
  if (request.continue_final_message) BH_RETURN_IF_ERROR(CutBehind(last, &rendered.text));
  return rendered;
}

}  // namespace bulkhead
