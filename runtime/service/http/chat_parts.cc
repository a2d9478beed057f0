#include "runtime/service/http/chat_parts.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

absl::StatusOr<ChatParts> MakeChatParts(ChatTemplate chat_template, const std::string& tool_parser,
                                        const std::string& reasoning_parser) {
  BH_ASSIGN_OR_RETURN(
      const OutputFormat plain,
      ChooseOutputFormat(tool_parser, reasoning_parser, chat_template.text(/*has_tools=*/false)));
  BH_ASSIGN_OR_RETURN(
      const OutputFormat with_tools,
      ChooseOutputFormat(tool_parser, reasoning_parser, chat_template.text(/*has_tools=*/true)));
  return ChatParts{std::move(chat_template), plain, with_tools};
}

}  // namespace bulkhead
