#include "runtime/service/http/chat_route.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "runtime/service/http/chat_form.h"
#include "runtime/service/http/chat_format.h"
#include "runtime/service/http/chat_parts.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// End-of-sequence tokens, which are not text of an answer.
std::vector<std::string> EndTexts(const ServingParts& parts) {
  std::vector<std::string> texts;
  for (const uint32_t id : parts.model_info.eos_token_ids()) {
    std::string text = parts.rules.tokenizer->Decode({static_cast<int32_t>(id)}, false);
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

// Each choice's parser has a copy.
absl::StatusOr<AnswerBudget::Hold> HoldTools(ServiceCore& core,
                                             const ChatCompletionRequest& request) {
  const auto bytes = static_cast<int64_t>(request.chat.tools.dump().size());
  return core.answers.Admit(bytes * (request.options.n + 1) * kHeldPerTextByte /
                            kHeldPerAnswerByte);
}

absl::Status Chat(const HttpContext& context, const ExchangePointer& exchange,
                  ParsedRequest parsed) {
  BH_ASSIGN_OR_RETURN(ChatJob chat, MakeChatJob(context, "chatcmpl-", ReadChat, parsed));
  GenerationJob& job = chat.job;
  job.format = std::make_unique<ChatFormat>(
      AnswerFrame(job.id, "chat.completion", chat.now_unix_s, chat.model, job.options),
      AnswerFrame(job.id, "chat.completion.chunk", chat.now_unix_s, chat.model, job.options),
      job.options, std::move(chat.output), chat.tokenizer, job.options.n);
  RunGeneration(context, std::move(job), exchange, parsed.origin);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatJob> MakeChatJob(const HttpContext& context, absl::string_view id_prefix,
                                    const ReadChatBody& read, ParsedRequest& parsed) {
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForNewRequest());
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ChatParts> chats, context.chats);
  if (parts->rules.tokenizer == nullptr) {
    return WithReason(
        absl::FailedPreconditionError("the model has no tokenizer.json; add it to the model's "
                                      "folder, or send token ids to /v1/completions"),
        reason::kTextNotSupported);
  }
  const RequestRules rules = RulesNow(*parts);
  BH_ASSIGN_OR_RETURN(ChatCompletionRequest request, read(std::move(parsed.body), rules));
  if (request.parses_tool_calls && !request.wanted_tool.has_value() && !chats->takes_tools) {
    return NotSupported("tools",
                        "the model's chat template does not take any; leave them out, or start the "
                        "server with a --chat-template that does");
  }
  // Checked before the work of rendering.
  BH_RETURN_IF_ERROR(CheckNames(request.common, rules));
  BH_ASSIGN_OR_RETURN(
      const std::string prompt,
      RenderedPrompt(*chats, request.chat, context.core->quotas, parsed.origin.on_text_worker));
  ChatJob made;
  GenerationJob& job = made.job;
  job.prompt_field = "messages";
  job.id = absl::StrCat(id_prefix, context.core->NewRequestId());
  const OutputFormat& format = request.parses_tool_calls ? chats->format_with_tools : chats->format;
  ChatOutputOptions& chat = made.output;
  chat.answers = &context.core->answers;
  BH_RETURN_IF_ERROR(AddForm(format, prompt, &request));
  chat.several_tool_calls = request.several_tool_calls;
  chat.includes_reasoning = request.includes_reasoning;
  const bool parses_calls = request.parses_tool_calls && format.tool != ToolFormat::kNone;
  if (parses_calls || format.reasoning != ReasoningFormat::kNone) {
    chat.parser.emplace();
    chat.parser->format = format;
    chat.parser->parse_tool_calls = parses_calls;
    chat.parser->calls_alone = request.wanted_tool.has_value();
    constexpr size_t kPromptEnd = 4096;  // enough to see what is left open at its end
    chat.parser->prompt =
        prompt.size() > kPromptEnd ? prompt.substr(prompt.size() - kPromptEnd) : prompt;
    chat.parser->call_id_seed = job.id;
    if (parses_calls && NeedsTools(format)) {
      BH_ASSIGN_OR_RETURN(chat.tools_hold, HoldTools(*context.core, request));
      chat.parser->tools = request.chat.tools;
    }
    if (NeedsSpecialTokens(format)) {
      request.options.skip_special_tokens = false;
      request.common.mutable_output()->set_skip_special_tokens(false);
      chat.parser->hidden_tokens = EndTexts(*parts);
    }
  }
  job.options = request.options;
  request.common.set_text(prompt);
  job.prompts.push_back(std::move(request.common));
  BH_RETURN_IF_ERROR(CheckChoices(parts->control->Limits(), job));
  job.claim = std::move(parsed.claim);
  made.model = job.options.model.empty() ? rules.served_model_names.front() : job.options.model;
  made.now_unix_s = absl::ToUnixSeconds(absl::Now());
  made.tokenizer = rules.tokenizer;
  return made;
}

void ServeChat(const HttpContext& context, HttpRequest request, const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange, [&context, exchange](ParsedRequest parsed) {
    return Chat(context, exchange, std::move(parsed));
  });
}

}  // namespace bulkhead
