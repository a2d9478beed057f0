#include "runtime/service/score_call.h"

#include <cmath>
#include <utility>

#include "memory/status.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/message_conversion.h"

namespace bulkhead {

grpc::ServerUnaryReactor* ScoreCall::Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                         const v1::ScoreRequest& message,
                                         v1::ScoreResponse* response) {
  EchoRequestId(*context);
  const bool wants_logprobs = !message.has_token_logprobs() || message.token_logprobs();
  auto call = std::make_shared<ScoreCall>(core, context, response, wants_logprobs);
  call->self_ = call;
  call->Start(message.text().size(), [self = call.get(), message](const RequestRules& rules) {
    return self->Build(message, rules);
  });
  return call.get();
}

absl::StatusOr<Request> ScoreCall::Build(const v1::ScoreRequest& message,
                                         const RequestRules& rules) {
  BH_ASSIGN_OR_RETURN(Request request, BuildScoreRequest(message, rules));
  score_.emplace(request.prompt);
  request.prompt_logits = &*score_;
  return request;
}

void ScoreCall::AcceptLocked(const Request& request) {
  response_->set_request_id(request.request_id);
  response_->set_epoch(core_->state.epoch());
  response_->mutable_token_ids()->mutable_ids()->Add(request.prompt.begin(), request.prompt.end());
}

absl::Status ScoreCall::AppendLocked(OutputDelta /*delta*/) { return absl::OkStatus(); }

void ScoreCall::FillResponse() {
  const absl::Span<const double> logprobs = score_->logprobs();
  if (wants_logprobs_) {
    for (const double logprob : logprobs) {
      response_->add_token_logprobs(static_cast<float>(logprob));
    }
  }
  const double nll = score_->nll();
  response_->set_nll(nll);
  response_->set_perplexity(
      logprobs.empty() ? 1 : std::exp(nll / static_cast<double>(logprobs.size())));
  *response_->mutable_timings() = ToProto(*end_, prompt_tokens_).timings();
}

void ScoreCall::Proceed() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!settled_ || !end_.has_value() || finishing_) return;
    finishing_ = true;
    if (end_->status.ok()) FillResponse();
  }
  Finish(EndWith(*context_, end_->status));
}

void ScoreCall::OnDone() {
  const std::shared_ptr<ScoreCall> self = std::move(self_);
  Closed();
}

}  // namespace bulkhead
