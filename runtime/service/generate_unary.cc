#include "runtime/service/generate_unary.h"

#include <utility>

#include "runtime/service/grpc_status.h"
#include "runtime/service/message_conversion.h"

namespace bulkhead {

grpc::ServerUnaryReactor* GenerateUnary::Run(ServiceCore* core,
                                             grpc::CallbackServerContext* context,
                                             const v1::GenerateRequest& message,
                                             v1::GenerateResponse* response) {
  EchoRequestId(*context);
  auto call =
      std::make_shared<GenerateUnary>(core, context, response, message.output().prompt_token_ids());
  call->self_ = call;
  call->Start(message.text().size(),
              [message](const RequestRules& rules) { return BuildRequest(message, rules); });
  return call.get();
}

void GenerateUnary::AcceptLocked(const Request& request) {
  response_->set_request_id(request.request_id);
  response_->set_epoch(core_->state.epoch());
  response_->set_seed(request.sampling.seed);
  if (echoes_prompt_) {
    response_->mutable_prompt_token_ids()->mutable_ids()->Add(request.prompt.begin(),
                                                              request.prompt.end());
  }
}

absl::Status GenerateUnary::AppendLocked(OutputDelta delta) {
  response_->mutable_text()->append(delta.text);
  for (const GeneratedToken& token : delta.tokens) *response_->add_tokens() = ToProto(token);
  return absl::OkStatus();
}

void GenerateUnary::Proceed() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!settled_ || !end_.has_value() || finishing_) return;
    finishing_ = true;
    if (end_->status.ok()) *response_->mutable_finished() = ToProto(*end_, prompt_tokens_);
  }
  Finish(EndWith(*context_, end_->status));
}

void GenerateUnary::OnDone() {
  const std::shared_ptr<GenerateUnary> self = std::move(self_);
  Closed();
}

}  // namespace bulkhead
