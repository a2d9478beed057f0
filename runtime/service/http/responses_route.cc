// POST /v1/responses.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/http/chat_route.h"
#include "runtime/service/http/responses_format.h"
#include "runtime/service/http/responses_request.h"
#include "runtime/service/http/routes.h"

namespace bulkhead {
namespace {

absl::Status Respond(const HttpContext& context, const ExchangePointer& exchange,
                     ParsedRequest parsed) {
  std::string echo;  // empty: the body was not read
  const auto read = [&echo](Json body,
                            const RequestRules& rules) -> absl::StatusOr<ChatCompletionRequest> {
    BH_ASSIGN_OR_RETURN(ResponsesRequest request, ReadResponses(std::move(body), rules));
    echo = std::move(request.echo);
    return std::move(request.chat);
  };
  absl::StatusOr<ChatJob> made = MakeChatJob(context, "resp_", read, parsed);
  if (!made.ok()) return echo.empty() ? made.status() : InResponsesFields(made.status());
  ChatJob& chat = *made;
  GenerationJob& job = chat.job;
  job.prompt_field = "input";
  std::string head = absl::StrCat("\"id\":", JsonString(job.id),
                                  ",\"object\":\"response\",\"created_at\":", chat.now_unix_s,
                                  ",\"model\":", JsonString(chat.model), ",", echo);
  BH_ASSIGN_OR_RETURN(AnswerBudget::Hold hold,
                      context.core->answers.Admit(static_cast<int64_t>(head.size())));
  if (!job.options.stream) chat.output.answers = nullptr;  // the call's own share covers it
  job.format =
      std::make_unique<ResponsesFormat>(job.id.substr(5), std::move(head), std::move(hold),
                                        job.options, std::move(chat.output), chat.tokenizer);
  RunGeneration(context, std::move(job), exchange, parsed.origin);
  return absl::OkStatus();
}

}  // namespace

void ServeResponses(const HttpContext& context, HttpRequest request,
                    const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange, [&context, exchange](ParsedRequest parsed) {
    return Respond(context, exchange, std::move(parsed));
  });
}

}  // namespace bulkhead
