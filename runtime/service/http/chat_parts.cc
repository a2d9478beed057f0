#include "runtime/service/http/chat_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
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
  const bool takes_tools = absl::StrContains(chat_template.text(/*has_tools=*/true), "tools");
  return ChatParts{std::move(chat_template), plain, with_tools, takes_tools};
}

absl::Status NoChats(absl::string_view why) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          why, "; use /v1/completions, or start the server with --chat-template FILE")),
      reason::kTextNotSupported);
}

absl::StatusOr<std::string> RenderedPrompt(const ChatParts& parts, const ChatRequest& chat,
                                           const HostQuotas& quotas, bool on_text_worker) {
  jinja::Limits limits;
  limits.max_output_bytes = quotas.message_bytes;
  if (!on_text_worker) {
    // Part of kShortRequestsBytes.
    limits.max_output_bytes = std::min<int64_t>(quotas.message_bytes, int64_t{1} << 20);
    limits.max_value_bytes = int64_t{4} << 20;
    limits.max_steps = 500'000;
  }
  absl::StatusOr<RenderedChat> rendered = RenderChat(parts.chat_template, chat, limits);
  if (rendered.ok()) return std::move(rendered->text);
  return InvalidField("messages", rendered.status().message());
}

}  // namespace bulkhead
