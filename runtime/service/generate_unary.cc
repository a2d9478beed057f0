#include "runtime/service/generate_unary.h"

#include <utility>

#include "base/status.h"
#include "runtime/service/generate_request.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/raw_message.h"

namespace bulkhead {

grpc::ServerUnaryReactor* GenerateUnary::Run(ServiceCore* core,
                                             grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* message,
                                             grpc::ByteBuffer* response) {
  EchoRequestId(*context);
  auto call = std::make_shared<GenerateUnary>(core, context, response);
  call->self_ = call;
  call->Start(message);
  return call.get();
}

absl::StatusOr<EngineCall::Parsed> GenerateUnary::Parse(grpc::ByteBuffer& message) {
  return ParseGenerate(message, echoes_prompt_);
}

int64_t GenerateUnary::MaxAnswerBytes(const Request& request, const RequestRules& rules) const {
  return MaxGenerateBytes(request, rules, echoes_prompt_);
}

void GenerateUnary::AcceptLocked(const Request& request) {
  std::string head;
  PackString(v1::GenerateResponse::kRequestIdFieldNumber, request.request_id, &head);
  PackString(v1::GenerateResponse::kEpochFieldNumber, core_->state.epoch(), &head);
  PackNumber(v1::GenerateResponse::kSeedFieldNumber, request.sampling.seed, &head);
  if (echoes_prompt_) {
    PackTokenIds(v1::GenerateResponse::kPromptTokenIdsFieldNumber, request.prompt, &head);
  }
  fields_.Append(head);
}

absl::Status GenerateUnary::AppendLocked(OutputDelta delta) {
  scratch_.clear();
  for (const GeneratedToken& token : delta.tokens) {
    PackToken(v1::GenerateResponse::kTokensFieldNumber, token, &scratch_);
  }
  const int64_t bytes = fields_.size() + text_.size() +
                        static_cast<int64_t>(scratch_.size() + delta.text.size()) + kMaxEndBytes;
  BH_RETURN_IF_ERROR(core_->answers.Grow(hold_, bytes, AnswerBudget::Use::kAcceptedWork));
  fields_.Append(scratch_);
  text_.Append(delta.text);
  return absl::OkStatus();
}

void GenerateUnary::FillResponseLocked() {
  std::string end;
  PackString(v1::GenerateResponse::kFinishedFieldNumber,
             ToProto(*end_, prompt_tokens_).SerializeAsString(), &end);
  if (text_.size() > 0) PackHead(v1::GenerateResponse::kTextFieldNumber, text_.size(), &end);
  fields_.Append(end);
  std::vector<std::string> pieces = fields_.TakePieces();
  for (std::string& piece : text_.TakePieces()) pieces.push_back(std::move(piece));
  *response_ = BufferOf(std::move(pieces));
}

void GenerateUnary::Proceed() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!settled_ || !end_.has_value() || finishing_) return;
    finishing_ = true;
    if (end_->status.ok()) FillResponseLocked();
    fields_.TakePieces();
    text_.TakePieces();
    hold_.ShrinkTo(end_->status.ok() ? static_cast<int64_t>(response_->Length()) : 0);
  }
  Finishing();
  Finish(EndWith(*context_, end_->status));
}

void GenerateUnary::OnDone() {
  const std::shared_ptr<GenerateUnary> self = std::move(self_);
  Closed();
}

}  // namespace bulkhead
