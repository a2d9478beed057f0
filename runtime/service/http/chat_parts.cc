#include "runtime/service/http/chat_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/refusal.h"

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

absl::Status NoChats(absl::string_view why) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          why, "; use /v1/completions, or start the server with --chat-template FILE")),
      reason::kTextNotSupported);
}

absl::StatusOr<std::string> RenderedPrompt(const ChatParts& parts, const ChatRequest& chat,
                                           int64_t max_bytes) {
  jinja::Limits limits;
  limits.max_output_bytes = max_bytes;
  absl::StatusOr<RenderedChat> rendered = RenderChat(parts.chat_template, chat, limits);
  if (rendered.ok()) return std::move(rendered->text);
  return InvalidField("messages", rendered.status().message());
}

}  // namespace bulkhead
