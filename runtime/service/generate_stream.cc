#include "runtime/service/generate_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/generation_service.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

grpc::ServerWriteReactor<v1::GenerateEvent>* GenerateStream::Run(
    ServiceCore* core, grpc::CallbackServerContext* context, const v1::GenerateRequest& message) {
  EchoRequestId(*context);
  auto call = std::make_shared<GenerateStream>(core, context, message.output().prompt_token_ids());
  call->self_ = call;
  call->Start(message.text().size(),
              [message](const RequestRules& rules) { return BuildRequest(message, rules); });
  return call.get();
}

void GenerateStream::AcceptLocked(const Request& request) {
  accepted_.emplace();
  accepted_->set_prompt_tokens(prompt_tokens_);
  accepted_->set_seed(request.sampling.seed);
  accepted_->set_max_tokens(max_tokens_);
  if (echoes_prompt_) {
    accepted_->mutable_prompt_token_ids()->mutable_ids()->Add(request.prompt.begin(),
                                                              request.prompt.end());
  }
  next_position_ = request.emitted.size();
}

absl::Status GenerateStream::AppendLocked(OutputDelta delta) {
  if (broken_) return absl::OkStatus();
  if (delta.position != next_position_) {
    return absl::InternalError(absl::StrCat("a delta begins at ", delta.position,
                                            " where position ", next_position_, " was due"));
  }
  pending_bytes_ += MessageBytes(delta);
  if (pending_bytes_ > kMaxBufferedBytes) {
    pending_.Clear();
    return WithReason(absl::ResourceExhaustedError(
                          absl::StrCat("the client reads too slowly: more than ", kMaxBufferedBytes,
                                       " bytes wait for it; read faster, or resume")),
                      reason::kSlowReader, {{"limit_bytes", absl::StrCat(kMaxBufferedBytes)}});
  }
  if (pending_.tokens().empty()) pending_.set_position(delta.position);
  next_position_ += delta.tokens.size();
  for (const GeneratedToken& token : delta.tokens) *pending_.add_tokens() = ToProto(token);
  pending_.mutable_text()->append(delta.text);
  return absl::OkStatus();
}

void GenerateStream::FillEventLocked() {
  event_.Clear();
  event_.set_request_id(request_id_);
  event_.set_epoch(core_->state.epoch());
}

GenerateStream::Next GenerateStream::NextLocked() {
  if (!settled_ || write_in_flight_ || finishing_) return Next::kNothing;
  if (admitted_ && !broken_) {
    if (accepted_.has_value()) {
      FillEventLocked();
      *event_.mutable_accepted() = *std::move(accepted_);
      accepted_.reset();
      write_in_flight_ = true;
      return Next::kWrite;
    }
    if (!pending_.tokens().empty() || !pending_.text().empty()) {
      FillEventLocked();
      tokens_written_ += pending_.tokens_size();
      event_.mutable_delta()->Swap(&pending_);
      pending_.Clear();
      pending_bytes_ = 0;
      write_in_flight_ = true;
      return Next::kWrite;
    }
  }
  if (!end_.has_value()) return Next::kNothing;
  finishing_ = true;
  if (!end_->status.ok() || broken_) return Next::kFinish;
  FillEventLocked();
  *event_.mutable_finished() = ToProto(*end_, prompt_tokens_);
  return Next::kWriteAndFinish;
}

void GenerateStream::Proceed() {
  Next next = Next::kNothing;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next = NextLocked();
  }
  // Nothing of this object is touched after Finish: the call may be over.
  switch (next) {
    case Next::kNothing:
      return;
    case Next::kWrite:
      return StartWrite(&event_);
    case Next::kWriteAndFinish:
      return StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
    case Next::kFinish:
      context_->AddTrailingMetadata("x-tokens-emitted", absl::StrCat(tokens_written_));
      return Finish(EndWith(*context_, end_->status));
  }
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    write_in_flight_ = false;
    if (!ok) {
      broken_ = true;
      pending_.Clear();
    }
  }
  Proceed();
}

void GenerateStream::OnDone() {
  const std::shared_ptr<GenerateStream> self = std::move(self_);
  Closed();
}

}  // namespace bulkhead
