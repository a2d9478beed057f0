// GenerationRun: the generations of one request, a call of the service for each choice, and their
// answer: whole, or as events. It owns itself until every call is closed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/scheduler_limits.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/http_exchange.h"
#include "runtime/service/http/routes.h"

namespace bulkhead {

struct GenerationJob {
  GenerationOptions options;
  std::string id;  // the answer's, and the beginning of the calls' request ids
  std::unique_ptr<AnswerFormat> format;
  // One for each prompt; choice i of n has seed + i.
  std::vector<v1::GenerateRequest> prompts;
  const char* prompt_field = "prompt";  // field of the body
  BodyClaim claim;                      // covers the prompts

  int num_choices() const { return static_cast<int>(prompts.size()) * options.n; }
};

// INVALID_ARGUMENT for more choices than may ever run and wait at once.
absl::Status CheckChoices(const SchedulerLimits& limits, const GenerationJob& job);

// Any thread. A text that n choices share is tokenised once, a long one on the text worker.
void RunGeneration(const HttpContext& context, GenerationJob job, const ExchangePointer& exchange,
                   const RequestOrigin& origin);

}  // namespace bulkhead
