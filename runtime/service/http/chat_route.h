// Shared by the routes of chats: converts a body to a generation that lacks its format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/service/http/chat_output.h"
#include "runtime/service/http/chat_request.h"
#include "runtime/service/http/generation_run.h"
#include "runtime/service/http/parsed_body.h"

namespace bulkhead {

struct ChatJob {
  GenerationJob job;
  ChatOutputOptions output;
  std::string model;  // as the answer names it
  int64_t now_unix_s = 0;
  const Tokenizer* tokenizer = nullptr;
};

using ReadChatBody =
    std::function<absl::StatusOr<ChatCompletionRequest>(Json body, const RequestRules& rules)>;

// Renders the prompt; takes body and claim of `parsed`. The answer's id begins with `id_prefix`.
absl::StatusOr<ChatJob> MakeChatJob(const HttpContext& context, absl::string_view id_prefix,
                                    const ReadChatBody& read, ParsedRequest& parsed);

}  // namespace bulkhead
