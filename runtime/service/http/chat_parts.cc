#include "runtime/service/http/chat_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

namespace {

// Templates compare roles with texts; those that do not know the role developer drop or refuse its
// messages, which then get the role system.
void MakeDevelopersSystem(const ChatParts& parts, ChatRequest& chat) {
  const absl::string_view text = parts.chat_template.text(/*has_tools=*/!chat.tools.is_null());
  if (absl::StrContains(text, "'developer'") || absl::StrContains(text, "\"developer\"")) return;
  for (auto& message : chat.messages) {
    if (message.at("role") == "developer") message["role"] = "system";
  }
}

// Whether the template takes a request's tools: Phi-4-mini's only takes those of a system message,
// which requests do not have.
bool TakesTools(absl::string_view text) {
  return absl::StrContains(absl::StrReplaceAll(text, {{"'tools' in message", ""},
                                                      {"\"tools\" in message", ""},
                                                      {"message['tools']", ""},
                                                      {"message[\"tools\"]", ""},
                                                      {"message.tools", ""}}),
                           "tools");
}

}  // namespace

absl::StatusOr<ChatParts> MakeChatParts(ChatTemplate chat_template, const std::string& tool_parser,
                                        const std::string& reasoning_parser) {
  BH_ASSIGN_OR_RETURN(
      const OutputFormat plain,
      ChooseOutputFormat(tool_parser, reasoning_parser, chat_template.text(/*has_tools=*/false)));
  BH_ASSIGN_OR_RETURN(
      const OutputFormat with_tools,
      ChooseOutputFormat(tool_parser, reasoning_parser, chat_template.text(/*has_tools=*/true)));
  const bool takes_tools = TakesTools(chat_template.text(/*has_tools=*/true));
  return ChatParts{std::move(chat_template), plain, with_tools, takes_tools};
}

absl::Status NoChats(absl::string_view why) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          why, "; use /v1/completions, or start the server with --chat-template FILE")),
      reason::kTextNotSupported);
}

absl::StatusOr<std::string> RenderedPrompt(const ChatParts& parts, ChatRequest& chat,
                                           const HostQuotas& quotas, bool on_text_worker) {
  jinja::Limits limits;
  limits.max_output_bytes = quotas.message_bytes;
  if (!on_text_worker) {
    // Counted in kShortRequestsBytes.
    limits.max_output_bytes = std::min<int64_t>(quotas.message_bytes, int64_t{1} << 20);
    limits.max_value_bytes = int64_t{4} << 20;
    limits.max_steps = 500'000;
  }
  MakeDevelopersSystem(parts, chat);
  absl::StatusOr<RenderedChat> rendered = RenderChat(parts.chat_template, chat, limits);
  if (rendered.ok()) return std::move(rendered->text);
  const absl::string_view why = rendered.status().message();
  const size_t colon = why.find(": ");
  for (const absl::string_view field :
       {"messages[", "chat_template_kwargs: ", "continue_final_message: "}) {
    if (absl::StartsWith(why, field) && colon != absl::string_view::npos) {
      return InvalidField(why.substr(0, colon), why.substr(colon + 2));
    }
  }
  return InvalidField("messages", why);
}

}  // namespace bulkhead
