// Chat templates: from a model folder and a chat request to the text of a prompt, as transformers'
// apply_chat_template renders it. The template language is runtime/chat/jinja/template.h's.
//
// Tokenise the text with add_special_tokens = false, as transformers and vLLM do: a template prints
// BOS itself where the model wants one, so a tokenizer that adds one would double it. Added tokens
// in the text must be matched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/jinja/template.h"

namespace bulkhead {

// The templates of a model, parsed, and its special tokens. Immutable; copies share the parse; any
// number of threads may render at once.
class ChatTemplate {
 public:
  // One template, from its text; `source` names it in messages. INVALID_ARGUMENT with the line for
  // a text that does not parse, UNIMPLEMENTED for a feature that the template language here lacks.
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view text, absl::string_view source);

  // The template for a request, by name: "tool_use" if tools are given and it exists, else
  // "default". INVALID_ARGUMENT lists the names if there is neither.
  absl::StatusOr<const jinja::Template*> Choose(bool has_tools) const;
  // Where the templates came from, for the log.
  const std::string& source() const { return source_; }
  // bos_token, eos_token, pad_token, ... of tokenizer_config.json, or of special_tokens_map.json if
  // missing there, by name; absent if null.
  const nlohmann::ordered_json& special_tokens() const { return special_tokens_; }
  // The text of that request's template, from which output parsers are chosen.
  absl::string_view text(bool has_tools) const;

 private:
  friend absl::StatusOr<ChatTemplate> LoadChatTemplate(const std::string&, const std::string&);
  absl::Status Add(const std::string& name, absl::string_view text, absl::string_view source);

  absl::flat_hash_map<std::string, std::shared_ptr<const jinja::Template>> templates_;
  nlohmann::ordered_json special_tokens_ = nlohmann::ordered_json::object();
  std::string source_;
};

// The chat template of a model folder. `choice` is the value of --chat-template: "" for the model's
// own, the name of one of its named templates, or a file. As in transformers,
// DIR/chat_template.jinja and DIR/additional_chat_templates/NAME.jinja come before the
// "chat_template" of DIR/tokenizer_config.json, which is a text or a list of {name, template}; then
// DIR/chat_template.json (older processors). NOT_FOUND if there is none, with the remedy;
// INVALID_ARGUMENT for a malformed file. Every file is at most 4 MiB.
absl::StatusOr<ChatTemplate> LoadChatTemplate(const std::string& model_dir,
                                              const std::string& choice = "");

// Lists of JSON objects, as clients of the OpenAI API send them, with the order of keys kept.
struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // a list, or null
  nlohmann::ordered_json documents;  // a list, or null
  bool add_generation_prompt = true;
  // The last message is left open for the model to continue; excludes add_generation_prompt.
  bool continue_final_message = false;
  // chat_template_kwargs: further variables (enable_thinking, ...), an object. They cannot replace
  // messages and tools.
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();
};

struct RenderedChat {
  std::string text;
};

// Content that is a list of text parts is joined with newlines, unless the template reads parts
// itself; null content becomes "". A tool call's arguments in a string that is a JSON object are
// given to the template as an object, as in vLLM. INVALID_ARGUMENT for malformed messages (named by
// index), for images, audio and video (named), and for errors that the template raises
// (raise_exception); RESOURCE_EXHAUSTED for a limit of `limits`, named.
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        const ChatRequest& request,
                                        const jinja::Limits& limits = {});

}  // namespace bulkhead
