// What a model's chats need: its template, and how it writes reasoning and calls of tools.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/output_parser.h"

namespace bulkhead {

struct ChatParts {
  ChatTemplate chat_template;
  OutputFormat format;             // without tools
  OutputFormat format_with_tools;  // of the template for them
};

// INVALID_ARGUMENT for a parser that there is not.
absl::StatusOr<ChatParts> MakeChatParts(ChatTemplate chat_template, const std::string& tool_parser,
                                        const std::string& reasoning_parser);

}  // namespace bulkhead
