// What a model's chats need: its template, and how it writes reasoning and tool calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/output_parser.h"
#include "runtime/service/host_quotas.h"

namespace bulkhead {

struct ChatParts {
  ChatTemplate chat_template;
  OutputFormat format;             // without tools
  OutputFormat format_with_tools;  // for the template with tools
  bool takes_tools = false;        // the template writes them into the prompt
};

// INVALID_ARGUMENT for an unknown parser.
absl::StatusOr<ChatParts> MakeChatParts(ChatTemplate chat_template, const std::string& tool_parser,
                                        const std::string& reasoning_parser);

// Or why there are no chats, as NoChats tells it.
using ChatsOr = absl::StatusOr<std::shared_ptr<const ChatParts>>;
// FAILED_PRECONDITION (TEXT_NOT_SUPPORTED) "`why`; ...", with what to do.
absl::Status NoChats(absl::string_view why);

// The text of the prompt, of at most the bytes of a message. INVALID_ARGUMENT naming messages. On
// threads other than the text worker only for short requests: takes milliseconds. The role
// developer becomes system in `chat` if the template does not know it.
absl::StatusOr<std::string> RenderedPrompt(const ChatParts& parts, ChatRequest& chat,
                                           const HostQuotas& quotas, bool on_text_worker);

}  // namespace bulkhead
