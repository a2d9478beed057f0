// The body of /v1/chat/completions: the conversation for the template, and a message of the public
// API that lacks the prompt.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/chat/chat_template.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/service/http/json_fields.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

struct ChatCompletionRequest {
  GenerationOptions options;
  v1::GenerateRequest common;
  ChatRequest chat;
  bool parses_tool_calls = false;  // tools are given, and the model may call them
  // The answer must be a call of this tool, or of any ("").
  std::optional<std::string> wanted_tool;
  bool several_tool_calls = true;  // else only the first is returned
  bool includes_reasoning = true;
};

// INVALID_ARGUMENT naming a field of the body.
absl::StatusOr<ChatCompletionRequest> ReadChat(Json body, const RequestRules& rules);

// The fields that /tokenize and chats share: messages, tools, and the template's variables.
absl::Status ReadConversation(JsonFields& fields, ChatRequest* chat);

}  // namespace bulkhead
