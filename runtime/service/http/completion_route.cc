// POST /v1/completions.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "runtime/service/http/completion_format.h"
#include "runtime/service/http/completion_request.h"
#include "runtime/service/http/generation_run.h"
#include "runtime/service/http/parsed_body.h"
#include "runtime/service/http/routes.h"

namespace bulkhead {
namespace {

absl::Status Complete(const HttpContext& context, const ExchangePointer& exchange,
                      ParsedRequest parsed) {
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForNewRequest());
  const RequestRules rules = RulesNow(*parts);
  BH_ASSIGN_OR_RETURN(CompletionRequest request, ReadCompletion(parsed.body, rules));
  parsed.body = Json();
  GenerationJob job;
  job.options = request.options;
  job.prompts = std::move(request.prompts);
  BH_RETURN_IF_ERROR(CheckChoices(parts->control->Limits(), job));
  job.claim = std::move(parsed.claim);
  job.id = absl::StrCat("cmpl-", context.core->NewRequestId());
  const std::string model =
      job.options.model.empty() ? rules.served_model_names.front() : job.options.model;
  job.format = std::make_unique<CompletionFormat>(
      AnswerFrame(job.id, "text_completion", absl::ToUnixSeconds(absl::Now()), model, job.options),
      job.options, rules.tokenizer, job.num_choices());
  RunGeneration(context, std::move(job), exchange, parsed.origin);
  return absl::OkStatus();
}

}  // namespace

void ServeCompletions(const HttpContext& context, HttpRequest request,
                      const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange, [&context, exchange](ParsedRequest parsed) {
    return Complete(context, exchange, std::move(parsed));
  });
}

}  // namespace bulkhead
